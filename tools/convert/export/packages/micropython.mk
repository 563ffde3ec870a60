# microtrain {{version}} as a user C module of MicroPython, for its ports that are built by make.
MICROTRAIN_DIR := $(USERMOD_DIR)

SRC_USERMOD_C += $(MICROTRAIN_DIR)/micropython/modmicrotrain.c
SRC_USERMOD_LIB_C += $(addprefix $(MICROTRAIN_DIR)/, \
    micropython/models.c \
{{sources_mk}})
# Empty but on an Arm core that has the instructions.
SRC_USERMOD_LIB_ASM += $(addprefix $(MICROTRAIN_DIR)/, \
{{assembly_mk}})

CFLAGS_USERMOD += -I$(MICROTRAIN_DIR)/src -I$(MICROTRAIN_DIR)/micropython -ffp-contract=off
