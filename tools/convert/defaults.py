"""What a conversion takes where nothing else is said; light, since every `--help` reads it."""

from __future__ import annotations

RULES = ("minmax", "percentile", "mse")  # of choosing a range from what calibration saw: quantize/ranges.py
RULE = "minmax"
RATE = 0.002  # learning rate; good for pretrained networks at batch size 1, lab/pages/results.md
SCORE_RATE = 0.01  # of an autoencoder, whose loss is a mean over what it makes
KNOWN_WORDS_RATE = 0.016  # of a head that begins with its own rows, of words; lab/pages/tasks.md
WEIGHTS_BITS = ("8", "4", "auto")  # of frozen layers: quantize/compress.py
