"""Networks and inputs that are larger than the published ones, with weights in flash beside the chip."""
