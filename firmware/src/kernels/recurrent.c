/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent cells. Contract: kernels/recurrent.h. */
#include "kernels/recurrent.h"

#include "chip.h"
#include "fixed_point.h"
#include "requantize.h"

enum { GATES_MOST = 4, SUM_BITS = 26, ONE_BITS = 15, ONE = 1 << ONE_BITS, CELL_BITS = 3 };

/* 2^15 / (1 + e^(-i / 16)). */
static const uint16_t SIGMOID[257] = {
    16384, 16896, 17407, 17916, 18421, 18923, 19420, 19912, 20397, 20874, 21344, 21804, 22255, 22696, 23127, 23547,
    23955, 24352, 24737, 25110, 25471, 25819, 26155, 26479, 26790, 27090, 27377, 27653, 27917, 28169, 28411, 28642,
    28862, 29072, 29272, 29462, 29644, 29816, 29979, 30135, 30282, 30422, 30555, 30680, 30799, 30912, 31018, 31119,
    31214, 31304, 31389, 31469, 31545, 31616, 31684, 31747, 31807, 31864, 31917, 31968, 32015, 32060, 32102, 32141,
    32179, 32214, 32247, 32278, 32307, 32335, 32361, 32385, 32408, 32430, 32450, 32469, 32487, 32504, 32520, 32535,
    32549, 32562, 32574, 32586, 32597, 32607, 32617, 32626, 32635, 32643, 32650, 32657, 32664, 32670, 32676, 32682,
    32687, 32692, 32696, 32701, 32705, 32709, 32712, 32716, 32719, 32722, 32725, 32727, 32730, 32732, 32734, 32736,
    32738, 32740, 32742, 32743, 32745, 32746, 32747, 32749, 32750, 32751, 32752, 32753, 32754, 32755, 32756, 32756,
    32757, 32758, 32758, 32759, 32759, 32760, 32760, 32761, 32761, 32762, 32762, 32762, 32763, 32763, 32763, 32764,
    32764, 32764, 32764, 32765, 32765, 32765, 32765, 32765, 32766, 32766, 32766, 32766, 32766, 32766, 32766, 32766,
    32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767, 32767,
    32767, 32767, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768,
    32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768,
    32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768,
    32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768,
    32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768, 32768,
    32768,
};

enum cell { GRU, LSTM, INTEGER_LSTM };

/* In the state, h behind it, and of an LSTM the cell behind that. */
struct state {
    uint32_t row; /* the next to come */
};

static int16_t *hidden_of(void *state)
{
    return (int16_t *)(void *)((struct state *)state + 1);
}

static int32_t *cell_of(const struct recurrent *p, void *state)
{
    return (int32_t *)(void *)(hidden_of(state) + round_up4(p->units));
}

uint32_t gru_state(const struct recurrent *p)
{
    return (uint32_t)sizeof(struct state) + 2 * round_up4(p->units);
}

uint32_t lstm_state(const struct recurrent *p)
{
    return gru_state(p) + 4u * p->units;
}

uint32_t integer_lstm_state(const struct recurrent *p)
{
    return lstm_state(p);
}

uint32_t recurrent_rows_scratch(const struct recurrent *p)
{
    return 2 * round_up4(p->inputs) + 2 * round_up4(p->units);
}

uint32_t gru_fwd_scratch(const struct recurrent *p)
{
    return gru_state(p) + recurrent_rows_scratch(p);
}

uint32_t lstm_fwd_scratch(const struct recurrent *p)
{
    return lstm_state(p) + recurrent_rows_scratch(p);
}

uint32_t integer_lstm_fwd_scratch(const struct recurrent *p)
{
    return lstm_fwd_scratch(p);
}

void recurrent_begin(void *state, uint32_t bytes)
{
    fill_bytes(state, 0, bytes);
}

/* Where value k of n lies: in groups of four in the order 0 2 1 3 where the chip widens every other byte of a word. */
ALWAYS_INLINE uint32_t place(uint32_t k, uint32_t n)
{
    return KERNELS_DSP && k < (n & ~3u) ? (k & ~3u) | (k & 1u) << 1 | (k >> 1 & 1u) : k;
}

#if KERNELS_DSP

/* sum + four values of a row, which v has in place()'s order. */
ALWAYS_INLINE int32_t four_products(const int8_t *row, int32_t even, int32_t odd, int32_t sum)
{
    const uint32_t word = load_u32(row);
    return __smlad(widen_13(word), odd, __smlad(widen_02(word), even, sum));
}

#endif

/* sums[g] = rows[g][k] * v[k] over all k, of `gates` rows one behind the other. Each sum has a name, so that it stays in
 * a register. */
ALWAYS_INLINE void products(const int8_t *rows, uint32_t n, const int16_t *v, uint32_t gates, int32_t *sums)
{
    const int8_t *a = rows, *b = a + n, *c = b + n, *d = gates > 3 ? c + n : c;
    int32_t w = 0, x = 0, y = 0, z = 0;
    uint32_t left = n;
#if KERNELS_DSP
    for (; left >= 4; left -= 4, v += 4, a += 4, b += 4, c += 4, d += 4) {
        const int32_t even = (int32_t)load_u32(v), odd = (int32_t)load_u32(v + 2);
        w = four_products(a, even, odd, w);
        x = four_products(b, even, odd, x);
        y = four_products(c, even, odd, y);
        z = gates > 3 ? four_products(d, even, odd, z) : 0;
    }
#endif
    for (; left; left--) {
        const int32_t by = *v++;
        w += *a++ * by;
        x += *b++ * by;
        y += *c++ * by;
        z += gates > 3 ? *d++ * by : 0;
    }
    sums[0] = w;
    sums[1] = x;
    sums[2] = y;
    if (gates > 3) {
        sums[3] = z;
    }
}

static int32_t logistic(int32_t a)
{
    const uint32_t size = a < 0 ? 0u - (uint32_t)a : (uint32_t)a, at = size < 65535 ? size : 65535;
    const int32_t left = SIGMOID[at >> 8], right = SIGMOID[(at >> 8) + 1];
    const int32_t s = left + (((right - left) * (int32_t)(at & 255u) + 128) >> 8);
    return a < 0 ? ONE - s : s;
}

static int32_t tangent(int32_t a)
{
    const uint32_t size = a < 0 ? 0u - (uint32_t)a : (uint32_t)a;
    const int32_t t = 2 * logistic(size < 32768 ? (int32_t)(2 * size) : 65535) - ONE, most = t < ONE ? t : ONE - 1;
    return a < 0 ? -most : most;
}

ALWAYS_INLINE int32_t halved(int64_t sum, uint32_t bits)
{
    return (int32_t)((sum + (1LL << bits) / 2) >> bits);
}

ALWAYS_INLINE int32_t share(int32_t v, int32_t w)
{
    return halved((int64_t)v * w, ONE_BITS);
}

/* a of a gate. */
ALWAYS_INLINE int32_t gate(int32_t b, int32_t sx, int32_t mx, int32_t sh, int32_t mh)
{
    return b + halved((int64_t)sx * mx + (int64_t)sh * mh, SUM_BITS);
}

/* h of a unit behind a row. */
ALWAYS_INLINE int32_t gru_unit(const int32_t *b, const int32_t *m, const int32_t *sx, const int32_t *sh, int32_t h)
{
    const int32_t r = logistic(gate(b[0], sx[0], m[0], sh[0], m[3]));
    const int32_t z = logistic(gate(b[1], sx[1], m[1], sh[1], m[4]));
    const int32_t n = tangent(gate(b[2], sx[2], m[2], 0, 0) + share(r, gate(b[3], 0, 0, sh[2], m[5])));
    return n + share(z, h - n);
}

ALWAYS_INLINE int32_t lstm_unit(const int32_t *b, const int32_t *m, const int32_t *sx, const int32_t *sh, int32_t *cell)
{
    int32_t a[GATES_MOST];
    for (uint32_t g = 0; g < GATES_MOST; g++) {
        a[g] = gate(b[g], sx[g], m[g], sh[g], m[GATES_MOST + g]);
    }
    *cell = halved((int64_t)logistic(a[1]) * *cell + (int64_t)logistic(a[0]) * tangent(a[2]), ONE_BITS);
    return share(logistic(a[3]), tangent(halved(*cell, CELL_BITS)));
}

/* A sum through the multiplier and the shift at m. */
ALWAYS_INLINE int32_t rescaled(int32_t sum, const int32_t *m)
{
    const uint32_t left = m[1] > 0 ? (uint32_t)m[1] : 0, right = m[1] < 0 ? 0u - (uint32_t)m[1] : 0;
    return divide_away(upper_half(sum * (2 << left), m[0]), right);
}

ALWAYS_INLINE int32_t integer_lstm_unit(const struct recurrent *p, const int32_t *b, const int32_t *sx,
                                        const int32_t *sh, int32_t *cell)
{
    const int32_t *m = p->m, bits = m[18], most = m[19], zero = m[20];
    int32_t a[GATES_MOST];
    for (uint32_t g = 0; g < GATES_MOST; g++) {
        const int32_t own = saturate16(rescaled(b[g] + sx[g], m + 2 * g));
        a[g] = saturate16(own + rescaled(sh[g], m + 8 + 2 * g));
    }
    const int32_t kept = divide_away(logistic16(a[1]) * *cell, 15);
    const int32_t made = saturate16(kept + divide_away(logistic16(a[0]) * tangent16(a[2], 3), 15 + (uint32_t)bits));
    *cell = most == 0 ? made : made > most ? most : made < -most ? -most : made;
    const int32_t out = rescaled(logistic16(a[3]) * tangent16(*cell, (uint32_t)bits), m + 16);
    return saturate8(out + zero) - p->y_zero;
}

/* One row, from unit `unit` on. y NULL: nobody reads what it leaves. */
ALWAYS_INLINE void row_of(const struct recurrent *p, enum cell kind, const int8_t *x, int8_t *y, void *state,
                          int16_t *scratch, uint32_t unit PACED)
{
    const uint32_t gates = kind == GRU ? 3 : 4;
    const uint32_t inputs = p->inputs, units = p->units, row = ((struct state *)state)->row;
    int16_t *h = hidden_of(state), *next = scratch + round_up4(inputs);
    (void)row;
    for (; unit < units; unit++) {
        if (PACE_STOP(row, unit, gates * (inputs + units) + 4u * WORK_OUTPUT)) {
            return;
        }
        for (uint32_t k = 0; unit == 0 && k < inputs; k++) {
            scratch[place(k, inputs)] = (int16_t)(x[k] - p->x_zero);
        }
        int32_t sx[GATES_MOST], sh[GATES_MOST];
        products(p->w_x + unit * gates * inputs, inputs, scratch, gates, sx);
        products(p->w_h + unit * gates * units, units, h, gates, sh);
        const int32_t *b = p->b + 4 * unit, *m = p->m + 2 * gates * unit;
        const uint32_t at = place(unit, units);
        int32_t made;
        if (kind == GRU) {
            made = gru_unit(b, m, sx, sh, h[at]);
        } else if (kind == LSTM) {
            made = lstm_unit(b, m, sx, sh, cell_of(p, state) + unit);
        } else {
            made = integer_lstm_unit(p, b, sx, sh, cell_of(p, state) + unit);
        }
        next[at] = (int16_t)made;
        if (y) {
            const int32_t whole = kind == INTEGER_LSTM ? made : round_product(made, p->y_unit);
            y[unit] = (int8_t)saturate8(whole + p->y_zero);
        }
    }
    copy_apart(h, next, 2 * units);
    ((struct state *)state)->row++;
}

NEVER_INLINE void gru_row(const struct recurrent *p, const int8_t *x, int8_t *y, void *state, int16_t *scratch,
                          uint32_t unit PACED)
{
    row_of(p, GRU, x, y, state, scratch, unit PACE);
}

NEVER_INLINE void lstm_row(const struct recurrent *p, const int8_t *x, int8_t *y, void *state, int16_t *scratch,
                           uint32_t unit PACED)
{
    row_of(p, LSTM, x, y, state, scratch, unit PACE);
}

NEVER_INLINE void integer_lstm_row(const struct recurrent *p, const int8_t *x, int8_t *y, void *state, int16_t *scratch,
                                   uint32_t unit PACED)
{
    row_of(p, INTEGER_LSTM, x, y, state, scratch, unit PACE);
}

/* Where the next row goes, y being that of row 0. NULL: nowhere. */
ALWAYS_INLINE int8_t *result_of(const struct recurrent *p, const void *state, int8_t *y)
{
    const uint32_t row = ((const struct state *)state)->row;
    return !p->last ? y + row * p->units : row + 1u == p->rows ? y : NULL;
}

/* A cell's row kernel; where it is a literal, it is called by name. */
typedef void row_kernel(const struct recurrent *p, const int8_t *x, int8_t *y, void *state, int16_t *scratch,
                        uint32_t unit PACED);

/* `count` rows from the next one on; y: where its result goes. */
ALWAYS_INLINE void rows_of(const struct recurrent *p, row_kernel *row, uint32_t count, const int8_t *x, int8_t *y,
                           void *state, void *scratch)
{
    for (y -= ((struct state *)state)->row * p->units; count; count--, x += p->inputs) {
        row(p, x, result_of(p, state, y), state, scratch, 0 UNPACED);
    }
}

void gru_rows_s8(const struct recurrent *p, uint32_t count, const int8_t *x, int8_t *y, void *state, void *scratch)
{
    rows_of(p, gru_row, count, x, y, state, scratch);
}

void lstm_rows_s8(const struct recurrent *p, uint32_t count, const int8_t *x, int8_t *y, void *state, void *scratch)
{
    rows_of(p, lstm_row, count, x, y, state, scratch);
}

void integer_lstm_rows_s8(const struct recurrent *p, uint32_t count, const int8_t *x, int8_t *y, void *state,
                          void *scratch)
{
    rows_of(p, integer_lstm_row, count, x, y, state, scratch);
}

/* A window, its state of `bytes` in front of what the rows need. */
ALWAYS_INLINE void window_of(const struct recurrent *p, row_kernel *kernel, uint32_t bytes, const int8_t *x, int8_t *y,
                             void *scratch PACED)
{
    uint32_t unit = 0;
    for (uint32_t row = PACE_OUTER(); row < p->rows && !PACE_PAUSED(); row++) {
        unit = PACE_INNER();
        if (row + unit == 0) {
            recurrent_begin(scratch, bytes);
        }
        int16_t *rest = (int16_t *)(void *)((uint8_t *)scratch + bytes);
        kernel(p, x + row * p->inputs, result_of(p, scratch, y), scratch, rest, unit PACE);
    }
}

void gru_fwd_s8(const struct recurrent *p, const int8_t *x, int8_t *y, void *scratch PACED)
{
    window_of(p, gru_row, gru_state(p), x, y, scratch PACE);
}

void lstm_fwd_s8(const struct recurrent *p, const int8_t *x, int8_t *y, void *scratch PACED)
{
    window_of(p, lstm_row, lstm_state(p), x, y, scratch PACE);
}

void integer_lstm_fwd_s8(const struct recurrent *p, const int8_t *x, int8_t *y, void *scratch PACED)
{
    window_of(p, integer_lstm_row, integer_lstm_state(p), x, y, scratch PACE);
}
