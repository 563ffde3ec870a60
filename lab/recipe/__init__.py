"""What a board learns from few images with nothing tuned, against what it did before and a PC does."""
