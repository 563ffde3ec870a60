/* SPDX-License-Identifier: Apache-2.0 */
/* What the scratch of a stream holds, for those that run it and that move it. */
#ifndef STREAM_STATE_H
#define STREAM_STATE_H

#include "kernels/conv2d.h"

/* Where a stage stands. Rows are counted with the padding above the image, in offsets from the scratch, which are as
 * large on every machine. */
struct progress {
    uint32_t window; /* [window_rows][w_in][c_in] */
    uint16_t first;  /* row that is the first of the window */
    uint16_t fed;    /* rows that entered; first..fed are in the window */
    uint16_t made;   /* output rows */
    uint16_t most;   /* rows that enter at once */
};

/* Scratch: this, progress of each stage, windows, rows that wait for their residual add, the kernels' scratch. */
struct head {
    uint32_t sums;    /* offset of those rows */
    uint32_t kernel;  /* offset of the kernels' scratch */
    uint32_t waiting; /* rows that entered since the chain last ran */
};

static inline struct progress *stages_of(void *scratch)
{
    return (struct progress *)(void *)((struct head *)scratch + 1);
}

static inline uint32_t in_bytes(const struct conv2d *p)
{
    return (uint32_t)p->w_in * p->c_in;
}

static inline uint32_t out_bytes(const struct conv2d *p)
{
    return (uint32_t)p->w_out * p->c_out;
}

#endif
