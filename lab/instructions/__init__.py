"""The coefficients by which the search estimates instructions, fitted to what the emulated board counts."""
