/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of the one LED: a number of blinks, a pause, and over again or not. docs/hardware.md says what they mean. */
#ifndef LIGHT_H
#define LIGHT_H

#include <stdint.h>

struct light {
    uint32_t start_ms;
    uint16_t on_ms, off_ms, pause_ms;
    uint8_t blinks; /* 0: the LED is nobody's, or that of the command `led` */
    uint8_t again;
};

void light_prediction(struct light *l, uint32_t class, uint32_t percent);
void light_mode(struct light *l, uint32_t mode);
void light_error(struct light *l);
void light_question(struct light *l); /* fast, until something else */
void light_off(struct light *l);

/* To be called at least every few milliseconds. */
void light_tick(struct light *l);

#endif
