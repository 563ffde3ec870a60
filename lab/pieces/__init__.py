"""How long pieces of a training step are on each core, and a bound that none of them passes."""
