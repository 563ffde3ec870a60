"""Training sessions on this machine, sample by sample as the device would have them."""
