/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls that bring an input: whole, in rows, in pieces, as sound, or moved on by a hop. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include "fuzz_rules.h"

enum { SAMPLES = 1024 };

static int16_t noise[SAMPLES];

/* Rows that are in, once this one is. */
static void took(struct expected *x, uint32_t y)
{
    x->order = PURE;
    x->heard = 0;
    x->rows = y + 1;
    x->slides = STAYS;
}

static void feed(struct expected *x)
{
    int wanted = let_in(x), how = (int)draw(3);
    uint32_t y = draw(4) ? x->rows : draw(PROGRAM_HEIGHT + 2);
    if (how == 0) {
        expect("feed", microtrain_feed(&x->instance, pixels), wanted, wanted);
        if (wanted == MICROTRAIN_OK) {
            took(x, 0);
            x->rows = PROGRAM_HEIGHT;
        }
        return;
    }
    if (wanted == MICROTRAIN_OK) {
        wanted = y >= PROGRAM_HEIGHT      ? MICROTRAIN_ERR_ARGUMENT
                 : y != 0 && y != x->rows ? MICROTRAIN_ERR_ORDER
                                          : MICROTRAIN_OK;
    }
    const uint8_t *row = pixels + (y < PROGRAM_HEIGHT ? y : 0) * PROGRAM_ROW_BYTES;
    if (how == 1) {
        expect("feed_row", microtrain_feed_row(&x->instance, y, row), wanted, wanted);
    } else {
        expect("feed_row_begin", microtrain_feed_row_begin(&x->instance, y, row), wanted, wanted);
    }
    if (wanted == MICROTRAIN_OK) {
        took(x, y);
        x->under_way = how == 2;
        x->rows = how == 2 ? y : y + 1;
        x->then.rows = y + 1;
        x->then.slides = STAYS;
        x->then.scored = 0;
        worked[ROWS_IN_PIECES] += how == 2;
    }
}

/* Samples: mostly those that follow, else some that are in already, or leave a gap, or are too many. */
static void hear(struct expected *x)
{
    uint32_t all = sizes.sound_samples, most = all ? all : 9;
    uint32_t at = x->order == UNKNOWN ? 0 : draw(4) ? x->heard : draw(most + 2);
    uint32_t count = draw(3) && at <= most ? most - at : draw(most + 2); /* all the rest, or any number */
    int wanted = let_in(x), again = at != 0 && at <= x->heard && count <= x->heard - at;
    if (wanted == MICROTRAIN_OK) {
        wanted = !all || at > all || count > all - at  ? MICROTRAIN_ERR_ARGUMENT
                 : at != 0 && !again && at != x->heard ? MICROTRAIN_ERR_ORDER
                                                       : MICROTRAIN_OK;
    }
    int status = microtrain_feed_sound(&x->instance, at, noise + (at < SAMPLES - most ? at : 0), count);
    expect("feed_sound", status, wanted, wanted);
    if (wanted != MICROTRAIN_OK || again) {
        return;
    }
    x->order = at == 0 ? PURE : x->order;
    x->heard = at + count;
    x->slides = STAYS;
    look(x);
    if (x->heard == all) {
        expect("rows of all samples", (int)x->rows, PROGRAM_HEIGHT, PROGRAM_HEIGHT);
        worked[HEARD]++;
    }
}

static void slide(struct expected *x)
{
    int wanted = let_in(x), other;
    if (wanted == MICROTRAIN_OK) {
        wanted = !sizes.hop_rows ? MICROTRAIN_ERR_ARGUMENT : x->slides == STAYS ? MICROTRAIN_ERR_ORDER : MICROTRAIN_OK;
    }
    other = wanted == MICROTRAIN_OK && x->slides == MAYBE ? MICROTRAIN_ERR_ORDER : wanted;
    int status = microtrain_slide(&x->instance);
    expect("slide", status, wanted, other);
    if (wanted == MICROTRAIN_OK) {
        x->slides = STAYS;
    }
    if (status == MICROTRAIN_OK) {
        x->rows = PROGRAM_HEIGHT - sizes.hop_rows;
        x->heard = x->hears;
        worked[SLID]++;
    }
}

#endif
