"""Attacks on what the project promises: each tries to break one promise and counts how often it could."""
