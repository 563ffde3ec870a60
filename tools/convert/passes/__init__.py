"""Passes over the training graph, Graph -> Graph: autodiff, pruning, streaming, order, recomputation."""
