"""Proves that a firmware ELF keeps to the numeric contract: see `python tools/elfcheck --help`."""
