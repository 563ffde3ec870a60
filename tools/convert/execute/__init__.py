"""Graphs run in NumPy: a training graph step by step, a forward graph over batches of images."""
