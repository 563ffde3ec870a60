"""The numeric contract in NumPy, and the C kernels bound to Python: what generated code is held against."""
