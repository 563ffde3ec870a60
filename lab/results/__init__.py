"""Accuracy of what the device computes, on real data: pages/results.md and what it is made of."""
