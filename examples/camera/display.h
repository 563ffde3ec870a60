/* SPDX-License-Identifier: Apache-2.0 */
/* A display and its picture memory, which nothing else uses. */
#ifndef DISPLAY_H
#define DISPLAY_H

#include <stdint.h>

enum { DISPLAY_WIDTH = 480, DISPLAY_HEIGHT = 272 };

/* Switches the display on. Returns its pixels, uint16 [DISPLAY_HEIGHT][DISPLAY_WIDTH] in RGB565, to be written one by
 * one; NULL where there is no display or its memory does not hold what is written. */
volatile uint16_t *display_open(void);

#endif
