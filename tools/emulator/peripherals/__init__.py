"""The peripherals of the STM32F746 that the board layer uses."""
