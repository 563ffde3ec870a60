"""Measures what a firmware's own code takes of flash, for the estimate of `convert`."""
