"""`python -m microtrain`."""

from microtrain.base.launch import launch

launch("microtrain", "microtrain")
