"""What README and the pages about the demo claim, from numbers that commands measured."""
