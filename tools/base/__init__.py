"""What every tool stands on; imports nothing of them."""
