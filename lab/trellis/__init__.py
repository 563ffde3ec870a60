"""Learns the table that weights in four bits are codes for (ops/coded.py), from normal numbers."""
