"""Readers of model files. All end in one walker over aten ops (`aten.py`) and one clean-up (`fold.py`)."""
