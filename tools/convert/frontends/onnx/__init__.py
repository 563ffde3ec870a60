"""Reads ONNX: its operators become calls of aten ops (`reader.py`)."""
