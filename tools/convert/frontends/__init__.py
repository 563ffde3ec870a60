"""Readers of model files (`torch`, `onnx`, `tflite`). All end in one walker over aten ops (`aten`) and one
clean-up (`clean`). `checkpoint.py` reads the published networks; `module.py` says which reader a file is for.
"""
