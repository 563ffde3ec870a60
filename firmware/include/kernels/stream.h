/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of layers that runs row by row: the tensors between its stages never exist whole.
 *
 * Each stage keeps a window of as many input rows as its kernel is high, and room for those that enter at once. Rows
 * that enter the chain travel down it as far as the windows allow; nothing is computed twice, and every row is made by
 * the very kernels that make whole tensors, so the bytes are the same however many rows enter at once. An inverted
 * bottleneck is such a chain, with its residual add at the end.
 *
 * Rows are counted, those of the padding too, in 16 bits: conversion proves that (h_out - 1) * stride_h + kh and
 * pad_h + h_in of every stage have room.
 *
 * The input is a tensor in memory (stream_fwd_s8), or comes row by row from outside (the functions below it).
 */
#ifndef KERNELS_STREAM_H
#define KERNELS_STREAM_H

#include "kernels/conv2d.h"
#include "kernels/elementwise.h"

enum { STREAM_STAGES_MAX = 12 };

/* What makes the rows of a stage. From STREAM_OWN on it is stream_rows() of model.c, which has a case for each stage
 * that is more than a convolution: one with an activation behind it, or another op. So a firmware holds the kernels
 * that its model calls and no others. */
enum stream_kind { STREAM_CONV2D, STREAM_DWCONV2D, STREAM_OWN };

/* One stage of the chain: a layer that makes rows from a window of rows, and those that work on its rows in place. */
struct stream_stage {
    const struct conv2d *conv; /* its geometry, with pad_h < kh; rows of padding hold x_zero */
    const struct split_weights *w;
    const int32_t *b;
    uint8_t kind;
};

struct model_memory;

struct stream {
    const struct stream_stage *stage;
    const struct add *add; /* y = add(last stage, x), its pixels those of one row; NULL: none */
    uint8_t stages;        /* 1..STREAM_STAGES_MAX */
    uint8_t rows;          /* rows of x that enter at once, >= 1: more of them take more scratch and fewer calls */
    uint8_t resident;      /* x is a tensor in memory; 0: it comes row by row, and add is NULL */
#ifdef MICROTRAIN_LIBRARY
    /* What stream_rows() is elsewhere, of this model and for this memory of it. */
    void (*own)(struct model_memory *memory, const struct stream_stage *stage, const struct conv2d *p, const int8_t *x,
                int8_t *y, void *scratch);
    struct model_memory *memory;
#endif
};

/* y = the chain applied to x.
 *
 * x        int8  [h_in][w_in][c_in] of the first stage
 * y        int8  [h_out][w_out][c_out] of the last stage. May begin in x or before it, as long as no row of y reaches
 *          a row of x that has not entered yet: tools/convert/ops/stream.py works out by how much
 * scratch  stream_fwd_scratch(s) bytes, 4-byte aligned: progress, windows, the kernels' scratch
 */
void stream_fwd_s8(const struct stream *s, const int8_t *x, int8_t *y, void *scratch PACED);
uint32_t stream_fwd_scratch(const struct stream *s);

/* The same by rows from outside: begin, then for each row of x write it to where stream_row points, w_in * c_in bytes,
 * and call stream_take, then end. The scratch stays untouched by others from begin to end, y from the first row. */
void stream_begin(const struct stream *s, void *scratch);
int8_t *stream_row(const struct stream *s, void *scratch);
void stream_take(const struct stream *s, int8_t *y, void *scratch PACED);
void stream_end(const struct stream *s, int8_t *y, void *scratch PACED);

/* Makes p->h_out rows of a stage of a kind from STREAM_OWN on. Model.c defines it where it has such stages; the one in
 * stream.c, which no stage calls, stands in for it elsewhere.
 *
 * p        the stage's geometry for these rows: their input, padding included, is the image
 * x        int8  [p->h_in][p->w_in][p->c_in]
 * y        int8  [p->h_out][p->w_out][p->c_out]; not in x
 * scratch  as the kernel of the stage's convolution needs */
#ifndef MICROTRAIN_LIBRARY
void stream_rows(const struct stream_stage *stage, const struct conv2d *p, const int8_t *x, int8_t *y, void *scratch);
#endif

#endif
