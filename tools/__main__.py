"""`python -m microtrain`."""

from microtrain.cli import main

main(prog_name="microtrain")
