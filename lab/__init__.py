"""What reproduces the paper and measures microtrain; no part of what users install."""
