"""Which layers to train: contribution analysis, and a search under budgets of memory and work."""

BACKENDS = ("loky", "ray")  # of joblib: this machine, or a Ray cluster
