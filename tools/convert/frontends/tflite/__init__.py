"""Reads TFLite's flatbuffers: their operators become calls of aten ops (`reader.py`)."""
