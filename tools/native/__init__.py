"""Generated models as libraries of this machine."""
