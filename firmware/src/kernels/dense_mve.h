/* SPDX-License-Identifier: Apache-2.0 */
/* Dense micro-kernels with Helium, a part of dense.c around dense_mve.S. */
#ifndef KERNELS_DENSE_MVE_H
#define KERNELS_DENSE_MVE_H

#include "dense.h"

/* Two lanes against rows; the order is that of dense_mve.S. */
struct dot_pair {
    const int16_t *lane[2]; /* of the functions of bytes: int8 */
    const int8_t *rows;
    uint32_t n;
    uint32_t row_step;  /* bytes to the next row: n, or 0 for one row instead of three */
    uint32_t sums_step; /* bytes from the sums of a row to the next, or 0 */
    uint32_t threes;    /* rows, by three; not 0 */
    int32_t *sums;
};

/* The same with `threes` fours of rows; row_step n. */
void dot_four(const struct dot_pair *at);
void dot_four_add(const struct dot_pair *at);

void dot_pair(const struct dot_pair *at);
void dot_pair_add(const struct dot_pair *at);
void dot_pair_bytes(const struct dot_pair *at);
void dot_pair_bytes_add(const struct dot_pair *at);
void pack_lane_of(int16_t *lane, const int8_t *rows, uint32_t step, uint32_t n, const int16_t *r);

/* gather_step() with such a step. */
void gather_near(int8_t *to, const int8_t *from, uint32_t step, uint32_t n);

/* Steps that the places of eight values of a column, 16 bits, can reach. */
enum { MOST_STEP = 65535 / 7 };

void gather_step(int8_t *to, const int8_t *from, uint32_t step, uint32_t n)
{
    if (step <= MOST_STEP) {
        gather_near(to, from, step, n);
        return;
    }
    for (const int8_t *end = to + n; to != end; from += step) {
        *to++ = *from;
    }
}

void pack_bytes(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, uint32_t n)
{
    for (uint32_t lane = 0; lane < span->live; lane++) {
        gather_step((int8_t *)(tile + panel_place(n, span->lanes, lane, 0)), rows + lane, step, n);
    }
}

void pack_columns(int16_t *tile, const struct span *span, const int8_t *rows, uint32_t step, const int16_t *r,
                  uint32_t n)
{
    for (uint32_t lane = 0; lane < span->live; lane++) {
        int16_t *to = tile + panel_place(n, span->lanes, lane, 0);
        if (step <= MOST_STEP) {
            pack_lane_of(to, rows + lane, step, n, r);
            continue;
        }
        const int8_t *from = rows + lane;
        for (uint32_t k = 0; k < n; k++, from += step) {
            to[k] = (int16_t)((r ? r[k] : 1) * *from);
        }
    }
}

void pack_lane(int16_t *tile, uint32_t lanes, uint32_t lane, const int8_t *row, uint32_t n, int32_t zero)
{
    int16_t *to = tile + panel_place(n, lanes, lane, 0);
    for (uint32_t k = 0; k < n; k++) {
        to[k] = (int16_t)(row[k] - zero);
    }
}

/* What a product of lanes and rows is. */
enum { ADDED = 1, BYTES = 2 };

/* `how`: a literal. */
ALWAYS_INLINE void dot_threes(const struct dot_pair *at, uint32_t how)
{
    if (how & BYTES) {
        (how & ADDED) ? dot_pair_bytes_add(at) : dot_pair_bytes(at);
    } else {
        (how & ADDED) ? dot_pair_add(at) : dot_pair(at);
    }
}

/* Rows in threes, those of 16 bits in fours, then those that are left, one by one. */
ALWAYS_INLINE void dot_lanes(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count,
                             int32_t *sums, uint32_t how)
{
    for (uint32_t lane = 0; lane < lanes; lane += 2, sums += 2) {
        const int16_t *first = tile + panel_place(n, lanes, lane, 0);
        uint32_t at_once = how & BYTES ? 3 : 4;
        struct dot_pair at = {{first, first + round_up4(n)}, rows, n, n, 4 * lanes, count / at_once, sums};
        if (at.threes && (how & BYTES)) {
            dot_threes(&at, how);
        } else if (at.threes) {
            (how & ADDED) ? dot_four_add(&at) : dot_four(&at);
        }
        at.row_step = at.sums_step = 0;
        for (uint32_t row = count - count % at_once; row < count; row++) {
            at.rows = rows + row * n;
            at.sums = sums + row * lanes;
            at.threes = 1;
            dot_threes(&at, how);
        }
    }
}

/* No layer but bwd_x of a convolution makes such tiles here, none of which has a bias. */
void dot_rows(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, const int32_t *bias,
              int32_t *sums)
{
    (void)bias;
    dot_lanes(tile, lanes, rows, n, count, sums, 0);
}

void dot_rows_add(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums)
{
    dot_lanes(tile, lanes, rows, n, count, sums, ADDED);
}

void dot_bytes(const int16_t *tile, uint32_t lanes, const int8_t *rows, uint32_t n, uint32_t count, int32_t *sums,
               int add)
{
    if (add) {
        dot_lanes(tile, lanes, rows, n, count, sums, BYTES | ADDED);
    } else {
        dot_lanes(tile, lanes, rows, n, count, sums, BYTES);
    }
}

#endif
