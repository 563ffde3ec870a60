"""Passes that turn the raw graph of a reader into the IR's float graph, in the order of `fold.py`."""
