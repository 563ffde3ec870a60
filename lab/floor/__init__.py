"""What a step needs at least on a Cortex-M7, layer by layer, and what it takes: lab/pages/floor.md."""
