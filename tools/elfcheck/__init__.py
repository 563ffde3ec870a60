"""Proves that a firmware ELF keeps to the numeric contract: see `microtrain elfcheck --help`."""
