/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that overlap: an input that moves on by some rows, of which only the new ones come in.
 *
 * The input streams (kernels/stream.h). When its last row is in, the memory below keeps the windows of the stages as they
 * are before the padding below the input enters, and the rows of y that will be the same in the next window. When the
 * window moves, the stages go on from there. What the padding above reaches is made anew, from rows of the input that are
 * kept for that; without padding above there are none. So each byte of y is that of a whole window that comes from the
 * start: tools/convert/ops/hop.py works out from the layers which rows these are.
 *
 * Where the stages cannot go on, all rows that stay enter anew. */
#ifndef KERNELS_HOP_H
#define KERNELS_HOP_H

#include "kernels/stream.h"

struct hop {
    uint16_t rows;  /* by which the window moves, 1..h_in - 1 */
    uint16_t again; /* rows of the moved input that enter anew */
    uint16_t top;   /* rows of y that they make, which padding above reaches */
    /* 1: the stages go on, and `rows` is a multiple of their strides together. 0: again is h_in - rows */
    uint16_t goes;
};

/* Bytes of the memory that is kept from window to window. 8-byte aligned. */
uint32_t hop_bytes(const struct hop *p, const struct stream *s);

/* stream_take, in its place. Others leave the memory alone from then on. */
void hop_take(const struct hop *p, const struct stream *s, int8_t *y, void *scratch, void *memory PACED);

/* In place of stream_begin and of the rows that stay, once a window was in whole: the rows behind them are next. */
void hop_slide(const struct hop *p, const struct stream *s, int8_t *y, void *scratch, void *memory);

#endif
