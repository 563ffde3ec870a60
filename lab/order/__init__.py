"""The order of code in flash that the instruction cache likes best: firmware/ld/code_order.ld."""
