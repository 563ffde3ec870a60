/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent cells over time, GRU and LSTM as PyTorch has them (Cho et al. 2014, Hochreiter and Schmidhuber 1997), and the LSTM
 * of TensorFlow Lite's int8 files. Inference only: no gradient passes them.
 *
 * A row of x is a step in time. The state behind it is h, int16 in units of 2^-15, and of an LSTM also the cell, int32 in
 * the same units. Both are 0 before the first row. All of it is integers but the rounding of y. Of a unit u and a gate g:
 *
 *   sx[g]   = sum over k of w_x[u][g][k] * (x[k] - x_zero)
 *   sh[g]   = sum over k of w_h[u][g][k] * h[k]                   h of the row before
 *   a[g]    = b[u][g] + ((sx[g] * m[u][g] + sh[g] * m[u][gates + g] + 2^25) >> 26)       units of 2^-12
 *   sig(a)  = SIGMOID between its entries, 2^15: i = min(|a|, 2^16 - 1) >> 8, f = min(|a|, 2^16 - 1) & 255
 *             S[i] + (((S[i + 1] - S[i]) * f + 128) >> 8), of a negative a 2^15 less that; S[i] = rint(2^15 / (1 + e^(-i / 16)))
 *   tan(a)  = min(2 * sig(2 * |a|) - 2^15, 2^15 - 1), with the sign of a
 *   v ^ w   = (v * w + 2^14) >> 15
 *
 *   GRU     gates r, z, n; each sum of n by itself: nx = b[u][2] + ((sx[2] * m[u][2] + 2^25) >> 26), nh likewise of sh[2]
 *           and b[u][3]
 *           n = tan(nx + sig(a[r]) ^ nh),  h = n + sig(a[z]) ^ (h - n)
 *   LSTM    gates i, f, g, o
 *           cell = (sig(a[f]) * cell + sig(a[i]) * tan(a[g]) + 2^14) >> 15
 *           h = sig(a[o]) ^ tan((cell + 4) >> 3)
 *
 *   y       = sat8(rint((float)h * y_unit) + y_zero)
 *
 * The integer LSTM (UNIDIRECTIONAL_SEQUENCE_LSTM, tensorflow/lite/kernels/lstm_eval.cc; Li and Alvarez 2021) rounds where
 * TensorFlow Lite's reference kernels do. h is y less the zero point that the state is read with; the cell is an int16 in
 * units of 2^(bits - 15). fix(s, k): MultiplyByQuantizedMultiplier() by the multiplier m[2k] of 31 bits and the shift
 * m[2k + 1] to the left, or a negative one; v / n rounds half away from 0. bits, most and zero are m[18] to m[20].
 *
 *   a[g]    = sat16(sat16(fix(b[u][g] + sx[g], g)) + fix(sh[g], 4 + g))       units of 2^-12
 *   cell    = sat16(logistic16(a[f]) * cell / 2^15 + logistic16(a[i]) * tangent16(a[g], 3) / 2^(15 + bits)), held
 *             between -most and most where that is not 0
 *   y       = sat8(fix(logistic16(a[o]) * tangent16(cell, bits), 8) + zero),  h = y - y_zero
 */
#ifndef KERNELS_RECURRENT_H
#define KERNELS_RECURRENT_H

#include "kernels/numeric.h"
#include "kernels/pace.h"

struct recurrent {
    uint16_t rows;   /* of a window: steps in time */
    uint16_t inputs; /* numbers in a row of x */
    uint16_t units;
    int16_t x_zero, y_zero; /* integer: y_zero is that of the state */
    uint16_t last;          /* 1: y is what the last row leaves; 0: what each row leaves */
    const int8_t *w_x;      /* [units][gates][inputs] */
    const int8_t *w_h;      /* [units][gates][units] */
    const int32_t *b;       /* [units][4], units of 2^-12; a GRU: of r, z, of x in n, of h in n; integer: of sx */
    const int32_t *m; /* [units][2][gates], 2^26 times what turns a sum into units of 2^-12; integer: [21] as above */
    float y_unit;     /* 2^-15 / s_y; integer: unused */
};

/* All rows of a window.
 *
 * x        int8 [rows][inputs]
 * y        int8 [rows][units], or [units] where last is 1; apart from x
 * scratch  as many bytes as the cell's scratch function says, 4-byte aligned
 */
void gru_fwd_s8(const struct recurrent *p, const int8_t *x, int8_t *y, void *scratch PACED);
void lstm_fwd_s8(const struct recurrent *p, const int8_t *x, int8_t *y, void *scratch PACED);
void integer_lstm_fwd_s8(const struct recurrent *p, const int8_t *x, int8_t *y, void *scratch PACED);
uint32_t gru_fwd_scratch(const struct recurrent *p);
uint32_t lstm_fwd_scratch(const struct recurrent *p);
uint32_t integer_lstm_fwd_scratch(const struct recurrent *p);

/* The same by rows as they come: begin, then `count` rows at a time, as often as there are any.
 *
 * state    as many bytes as the cell's state function says, 4-byte aligned, all 0 after begin, untouched by others until
 *          the last row
 * x        int8 [count][inputs]
 * y        where the first of these rows would stand in int8 [rows][units]; where last is 1 only what the last row leaves
 *          is written, to the place of row 0
 * scratch  recurrent_rows_scratch(p) bytes, 4-byte aligned
 */
void recurrent_begin(void *state, uint32_t bytes);
void gru_rows_s8(const struct recurrent *p, uint32_t count, const int8_t *x, int8_t *y, void *state, void *scratch);
void lstm_rows_s8(const struct recurrent *p, uint32_t count, const int8_t *x, int8_t *y, void *state, void *scratch);
void integer_lstm_rows_s8(const struct recurrent *p, uint32_t count, const int8_t *x, int8_t *y, void *state,
                          void *scratch);
uint32_t gru_state(const struct recurrent *p);
uint32_t lstm_state(const struct recurrent *p);
uint32_t integer_lstm_state(const struct recurrent *p);
uint32_t recurrent_rows_scratch(const struct recurrent *p);

#endif
