"""How much of the chip a firmware needs: flash, SRAM and the deepest stack, from the ELF and plan.json."""
