"""Bugs planted in the firmware, one at a time, and which suite of tests notices each."""
