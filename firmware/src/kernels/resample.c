/* SPDX-License-Identifier: Apache-2.0 */
/* Weighted sums of rows and columns, and of their errors. Contract: kernels/resample.h. */
#include "kernels/resample.h"

#include "channel.h"
#include "chip.h"

#include <string.h>

enum { CHANNELS = 8 }; /* of which terms are read once */

/* The terms of the next place. */
ALWAYS_INLINE const uint16_t *after(const uint16_t *terms)
{
    return terms + 1 + 2 * terms[0];
}

/* The sums of n channels of one output. x: of the first channel */
static void channel_sums(const struct resample *p, const uint16_t *row, const uint16_t *column, const int8_t *x,
                         uint32_t n, int32_t *sums)
{
    const uint32_t c = p->c, line = p->w_in * c, rows = *row++, columns = *column++;
    const int32_t zero = p->zero;
    memset(sums, 0, n * sizeof *sums);
    for (uint32_t i = 0; i < rows; i++, row += 2) {
        const int8_t *pixels = x + row[0] * line;
        for (uint32_t j = 0; j < columns; j++) {
            const int8_t *from = pixels + column[2 * j] * c;
            const int32_t weight = (int32_t)((uint32_t)row[1] * column[2 * j + 1]);
            for (uint32_t k = 0; k < n; k++) {
                sums[k] += weight * (from[k] - zero);
            }
        }
    }
}

ALWAYS_INLINE int32_t mean_of(const struct resample *p, int32_t sum)
{
#if MICROTRAIN_TFLITE
    return mean_away(sum + p->zero * p->divisor, p->divisor);
#else
    return round_limited((float)sum * p->unit) + p->zero;
#endif
}

/* All channels of one output. */
static void mixed_pixel(const struct resample *p, const uint16_t *row, const uint16_t *column, const int8_t *x,
                        int8_t *y)
{
    int32_t sums[CHANNELS];
    for (uint32_t left = p->c, n; left; left -= n, x += n, y += n) {
        n = left < CHANNELS ? left : CHANNELS;
        channel_sums(p, row, column, x, n, sums);
        for (uint32_t k = 0; k < n; k++) {
            y[k] = (int8_t)mean_of(p, sums[k]);
        }
    }
}

/* The same where an output is a pixel of x or nothing. */
static void copied_pixel(const struct resample *p, const uint16_t *row, const uint16_t *column, const int8_t *x,
                         int8_t *y)
{
    if (row[0] && column[0]) {
        memcpy(y, x + ((uint32_t)row[1] * p->w_in + column[1]) * p->c, p->c);
    } else {
        memset(y, p->zero, p->c);
    }
}

void resample_fwd_s8(const struct resample *p, const uint16_t *rows, const uint16_t *columns, const int8_t *x,
                     int8_t *y)
{
    for (uint32_t i = 0; i < p->h_out; i++, rows = after(rows)) {
        const uint16_t *column = columns;
        for (uint32_t j = 0; j < p->w_out; j++, column = after(column), y += p->c) {
            if (p->unit == 1.0f) {
                copied_pixel(p, rows, column, x, y);
            } else {
                mixed_pixel(p, rows, column, x, y);
            }
        }
    }
}

/* What the outputs that read a pixel say of one channel. ey: its first error */
static int32_t error_sum(const struct resample *p, const uint16_t *row, const uint16_t *column, const int8_t *ey)
{
    const uint32_t c = p->c, line = p->w_out * c, rows = *row++, columns = *column++;
    int32_t sum = 0;
    for (uint32_t i = 0; i < rows; i++, row += 2) {
        const int8_t *pixels = ey + row[0] * line;
        for (uint32_t j = 0; j < columns; j++) {
            sum += (int32_t)((uint32_t)row[1] * column[2 * j + 1]) * pixels[column[2 * j] * c];
        }
    }
    return sum;
}

/* All pixels of one channel, whose errors begin at ey: returns the peak of their sums, and with `write` rounds these by
 * the gain. */
static int32_t pass_channel(const struct resample *p, const uint16_t *rows, const uint16_t *columns,
                            const struct channel *ch, const int8_t *ey, int write, float gain)
{
    int32_t peak = 0;
    for (uint32_t pixel = 0, y = 0; y < p->h_in; y++, rows = after(rows)) {
        const uint16_t *column = columns;
        for (uint32_t x = 0; x < p->w_in; x++, pixel++, column = after(column)) {
            int32_t sum = channel_passes(ch, pixel) ? error_sum(p, rows, column, ey) : 0;
            peak = larger_magnitude(peak, sum);
            if (write) {
                ch->q[pixel * p->c] = channel_q(sum, gain);
            }
        }
    }
    return peak;
}

void resample_bwd_x_s8(const struct resample *p, const uint16_t *rows, const uint16_t *columns,
                       const struct error_s8 *ey, const struct clamp *clamp, const struct error_s8 *ex)
{
    for (uint32_t i = 0; i < p->c; i++) {
        const struct channel ch = channel_of(ex, clamp, p->c, i);
        int32_t peak = pass_channel(p, rows, columns, &ch, ey->q + i, 0, 0.0f);
        float unit = channel_unit(clamp, i, ey->scale[i] * p->unit);
        float gain = channel_gain((float)peak, unit, &ex->scale[i]);
        pass_channel(p, rows, columns, &ch, ey->q + i, 1, gain);
    }
}
