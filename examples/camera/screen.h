/* SPDX-License-Identifier: Apache-2.0 */
/* What the camera demo shows on a display: the picture on the left, beside it mode, class, confidence and counts. Does
 * nothing where there is no display. */
#ifndef SCREEN_H
#define SCREEN_H

#include <stdint.h>

struct screen {
    volatile uint16_t *frame; /* NULL: no display */
};

/* What stands beside the picture. */
struct panel {
    const char *mode;
    const char *complaint;     /* in place of class and confidence, NULL: none */
    uint32_t class, percent;   /* of the last shot */
    uint32_t steps;            /* of training, so far */
    uint32_t correct, counted; /* by evaluation, so far */
};

void screen_open(struct screen *s);

/* Row y of the camera's picture, RGB565 with the high byte first. */
void screen_row(const struct screen *s, uint32_t y, const uint8_t *pixels);

void screen_panel(const struct screen *s, const struct panel *p);

#endif
