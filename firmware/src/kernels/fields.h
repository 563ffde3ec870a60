/* SPDX-License-Identifier: Apache-2.0 */
/* What the outputs of a dense convolution see of its input: fields, gathered as bytes. */
#ifndef KERNELS_FIELDS_H
#define KERNELS_FIELDS_H

#include "chip.h"
#include "kernels/conv2d.h"

/* One of the two weight matrices and the input channels it is for. */
struct part {
    const int8_t *w;
    const uint16_t *order; /* NULL: all channels in natural order */
    uint32_t count;        /* channels */
    uint32_t k;            /* weights per output channel */
};

/* The input pixel at the upper left of what an output sees; may lie in the padding. */
struct corner {
    int32_t y, x;
};

ALWAYS_INLINE struct corner corner_of(const struct conv2d *p, uint32_t pixel)
{
    int32_t y = (int32_t)(pixel / p->w_out), x = (int32_t)(pixel % p->w_out);
    return (struct corner){y * p->stride_h - p->pad_h, x * p->stride_w - p->pad_w};
}

/* The corner of the output n further on, in the same row or the first of the next. */
ALWAYS_INLINE void next_corner(const struct conv2d *p, struct corner *at, uint32_t n)
{
    at->x += (int32_t)n * p->stride_w;
    if (at->x == p->w_out * p->stride_w - p->pad_w) {
        at->x = -p->pad_w;
        at->y += p->stride_h;
    }
}

/* bytes[kh][kw][count] = what the output at the corner sees, padding as x_zero. */
void fetch_field(const struct conv2d *p, const int8_t *x, struct corner at, const struct part *part, int8_t *bytes);

/* The same of n outputs, from the one at the corner on: bytes[n][part->k]. */
void fetch_fields(const struct conv2d *p, const int8_t *x, struct corner at, uint32_t n, const struct part *part,
                  int8_t *bytes);

#endif
