"""The peripherals of the chips that the board layer uses."""
