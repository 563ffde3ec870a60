"""The example built by every compiler at hand: sizes, and whether what is learned is the same to the bit."""
