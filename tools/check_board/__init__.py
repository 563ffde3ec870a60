"""Whether a board computes what the emulated one does, and how fast: `microtrain check-board`."""
