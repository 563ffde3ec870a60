"""Which layers to train: contribution analysis, and a search under budgets of memory and work."""
