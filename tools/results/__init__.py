"""Accuracy of what the device computes, on real data: docs/results.md and what it is made of."""
