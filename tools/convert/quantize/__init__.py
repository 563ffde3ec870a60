"""From float to int8: calibration images, ranges, the int8 graph, and what it costs in accuracy."""
