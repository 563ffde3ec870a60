"""Calls of aten ops, which every reader ends in: layers of the float graph (`rules.py`), or constants."""
