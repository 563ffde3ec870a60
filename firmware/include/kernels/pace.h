/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in pieces, for the library (MICROTRAIN_LIBRARY): a kernel whose prototype ends in PACED stops between two units
 * of its outermost loops when the work of a piece is done, and goes on there when it is called again with the same
 * arguments. What is in its scratch must still be there. Elsewhere all of it vanishes.
 *
 * Work is counted in units of about an instruction of a Cortex-M4 with DSP and FPU: a multiply-accumulate, and WORK_OUTPUT
 * for each value that is rounded.
 */
#ifndef KERNELS_PACE_H
#define KERNELS_PACE_H

#include <stddef.h>
#include <stdint.h>

enum { WORK_OUTPUT = 16 };
#define PACE_CLOSE UINT32_MAX /* a unit behind all others */

#ifdef MICROTRAIN_LIBRARY

/* Where a kernel stands, and what a piece may still do. */
struct pace {
    uint32_t left;      /* work; a piece ends before a unit that takes more, but for its first */
    uint32_t at, inner; /* unit to go on with, of the outer and of the inner loop */
    uint32_t some;      /* 1: the piece has done a unit */
    uint32_t paused;    /* 1: the kernel has not ended */
    /* Of a stream (kernels/stream.h). */
    uint32_t phase, rows_left, rows, stage, closing;
};

/* Before a unit of the kernel: 1 where it must stop. pace NULL: never. */
static inline int pace_stop(struct pace *pace, uint32_t at, uint32_t inner, uint32_t work)
{
    if (!pace) {
        return 0;
    }
    if (pace->some && work > pace->left) {
        pace->at = at;
        pace->inner = inner;
        pace->paused = 1;
        return 1;
    }
    pace->some = 1;
    pace->left -= work < pace->left ? work : pace->left;
    return 0;
}

/* The unit to begin with, which is forgotten. */
static inline uint32_t pace_take(uint32_t *place)
{
    uint32_t at = place ? *place : 0;
    if (place) {
        *place = 0;
    }
    return at;
}

#define PACED , struct pace *pace
#define PACE , pace
#define UNPACED , NULL
#define PACE_IS_ON() (pace != NULL)
#define PACE_OUTER() pace_take(pace ? &pace->at : NULL)
#define PACE_INNER() pace_take(pace ? &pace->inner : NULL)
#define PACE_MIDDLE() (pace && pace->inner) /* 1: it goes on inside a unit of the outer loop */
#define PACE_STOP(at, inner, work) pace_stop(pace, at, inner, work)
#define PACE_SKIP(at, begin) ((at) < (begin))
#define PACE_PAUSED() (pace && pace->paused)
#define PACE_CLOSES()                                                                                                  \
    (pace && pace->at == PACE_CLOSE) /* 1: of a stream's rows nothing is left but the add behind them */
#define PACE_CLOSING() (pace ? pace->closing : 0u)
#define PACE_IS(field, number) (pace->field = (number))
#define PACE_IS_DONE() ((void)PACE_OUTER(), (void)PACE_INNER())

#else

#define PACED
#define PACE
#define UNPACED
#define PACE_IS_ON() 0
#define PACE_OUTER() 0u
#define PACE_INNER() 0u
#define PACE_MIDDLE() 0
#define PACE_STOP(at, inner, work) 0
#define PACE_SKIP(at, begin) ((void)(begin), 0)
#define PACE_PAUSED() 0
#define PACE_CLOSES() 0
#define PACE_CLOSING() 0u
#define PACE_IS(field, number) ((void)0)
#define PACE_IS_DONE() ((void)0)

#endif
#endif
