/* SPDX-License-Identifier: Apache-2.0 */
/* Residual add and the joints of the error graph. Contract: kernels/elementwise.h. */
#include "kernels/elementwise.h"

#include "channel.h"
#include "chip.h"
#include "requantize.h"

enum { SUM_FRACTION = 20 }; /* bits behind the point of what TensorFlow Lite adds up */

#if MICROTRAIN_TFLITE

/* v * fine / 2^31, half up, and a shift, half away from zero. */
ALWAYS_INLINE int32_t times(int32_t v, int32_t fine, uint32_t shift)
{
    int32_t t = doubling_high(v, fine);
    return shift ? shift_away(t, (struct twice){.shift = shift, .offset = 1 << (shift - 1)}) : t;
}

/* Stored value of one sum as TensorFlow Lite makes it, before saturation. */
NEVER_INLINE int32_t add_as_tflite(const struct add *p, int32_t a, int32_t b)
{
    int32_t fine = p->b < 0 ? -p->b : p->b;
    int32_t left = times((a - p->a_zero) * (1 << SUM_FRACTION), p->a, p->shifts & 255u);
    int32_t right = times((b - p->b_zero) * (1 << SUM_FRACTION), fine, p->shifts >> 8 & 255u);
    return times(p->b < 0 ? left - right : left + right, p->y, p->shifts >> 16) + p->y_zero;
}

#endif

/* Stored value of one sum of an add before saturation: limited to +-1024, then zero added. */
ALWAYS_INLINE int32_t add_value(const struct add *p, int32_t a, int32_t b)
{
    if (p->a < 0) {
        return (-p->a * a + p->b * b + p->y) >> ADD_FRACTION;
    }
#if MICROTRAIN_TFLITE
    if (p->shifts) {
        return add_as_tflite(p, a, b);
    }
#endif
    float left = (float)(a - p->a_zero) * float_of((uint32_t)p->a);
    float right = (float)(b - p->b_zero) * float_of((uint32_t)p->b);
    float v = (left + right) / float_of((uint32_t)p->y);
    return round_limited(v) + p->y_zero;
}

#if KERNELS_DSP
/* elementwise_armv7em.S, of proven integers; n: a multiple of 4, with a mask of 8, not 0. */
void add_integers(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n);
void add_integers_masked(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n, uint8_t *mask);
#endif

#if KERNELS_MVE
/* The same in elementwise_mve.S, of any n without a mask. */
void add_vectors(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n);
void add_vectors_masked(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n, uint8_t *mask);
#define ADD(which) add_vectors##which
#else
#define ADD(which) add_integers##which
#endif

/* n outputs without a mask. */
static void add_unmasked(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n)
{
    uint32_t i = 0;
#if KERNELS_DSP
    if (p->a < 0 && n >= 4) {
        i = n & ~3u;
        ADD()(p, a, b, y, i);
    }
#endif
    for (; i < n; i++) {
        y[i] = (int8_t)saturate8(add_value(p, a[i], b[i]));
    }
}

/* n outputs, 8 at most, and their bits of the mask. p is a copy, which no store of an output can change. */
ALWAYS_INLINE uint8_t add_masked(struct add p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n)
{
    uint32_t bits = 0;
    for (uint32_t i = 0, bit = 1; i < n; i++, bit <<= 1) {
        int32_t v = add_value(&p, a[i], b[i]), q = saturate8(v);
        y[i] = (int8_t)q;
        bits |= v == q ? bit : 0;
    }
    return (uint8_t)bits;
}

void add_fwd_s8(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint8_t *mask)
{
    uint32_t c = p->c;
    if (!mask) {
        add_unmasked(p, a, b, y, p->pixels * c);
        return;
    }
#if KERNELS_DSP
    if (p->a < 0 && c % 8 == 0 && c && p->pixels) {
        ADD(_masked)(p, a, b, y, p->pixels * c, mask);
        return;
    }
#endif
    const struct add copy = *p;
    for (uint32_t pixel = 0; pixel < copy.pixels; pixel++) {
        for (uint32_t ch = 0, n; ch < c; ch += n, a += n, b += n, y += n) {
            n = c - ch < 8 ? c - ch : 8;
            *mask++ = add_masked(copy, a, b, y, n);
        }
    }
}

/* Copies n bytes, 8 at most, of which the bits are set; the others become 0. */
ALWAYS_INLINE void pass_bytes(const int8_t *from, uint32_t bits, uint32_t n, int8_t *to)
{
    if (n == 8) {
        uint32_t first = load_u32(from) & bytes_of(bits & 15u), second = load_u32(from + 4) & bytes_of(bits >> 4);
        store_u32(to, first);
        store_u32(to + 4, second);
        return;
    }
    for (; n; n--, bits >>= 1) {
        *to++ = bits & 1u ? *from : 0;
        from++;
    }
}

/* The errors that the mask lets pass. */
static void pass_masked(uint32_t pixels, uint32_t c, const int8_t *from, const uint8_t *mask, int8_t *to)
{
    for (; pixels; pixels--) {
        for (uint32_t ch = 0, n; ch < c; ch += n, from += n, to += n) {
            n = c - ch < 8 ? c - ch : 8;
            pass_bytes(from, *mask++, n, to);
        }
    }
}

void error_pass_s8(uint32_t pixels, uint32_t c, const struct error_s8 *in, float factor, const struct clamp *clamp,
                   const struct error_s8 *out)
{
    if (clamp->mask) {
        pass_masked(pixels, c, in->q, clamp->mask, out->q);
    } else {
        memmove(out->q, in->q, pixels * c);
    }
    for (uint32_t ch = 0; ch < c; ch++) {
        out->scale[ch] = channel_unit(clamp, ch, in->scale[ch] * factor);
    }
}

/* Two errors of one channel and what a unit of each is worth. */
struct pair {
    const int8_t *a, *b;
    float a_unit, b_unit;
};

ALWAYS_INLINE float pair_sum(const struct pair *pair, uint32_t at)
{
    return (float)pair->a[at] * pair->a_unit + (float)pair->b[at] * pair->b_unit;
}

/* Largest magnitude of the sums that pass. */
ALWAYS_INLINE float pair_peak(const struct pair *pair, const struct channel *ch, uint32_t pixels)
{
    float peak = 0.0f;
    for (uint32_t pixel = 0, at = 0; pixel < pixels; pixel++, at += ch->c) {
        if (channel_passes(ch, pixel)) {
            peak = larger_magnitude_f32(peak, pair_sum(pair, at));
        }
    }
    return peak;
}

/* What error_add() is between. */
struct joint {
    const struct error_s8 *a, *b, *out;
    const struct clamp *clamp;
    float a_factor, b_factor;
    uint32_t pixels, c;
};

/* One channel of error_add(). */
NEVER_INLINE void add_channel(const struct joint *to, uint32_t i)
{
    const struct channel ch = channel_of(to->out, to->clamp, to->c, i);
    const struct pair pair = {to->a->q + i, to->b->q + i, to->a->scale[i] * to->a_factor,
                              to->b->scale[i] * to->b_factor};
    float peak = pair_peak(&pair, &ch, to->pixels);
    float gain = channel_gain(peak, channel_unit(to->clamp, i, 1.0f), &to->out->scale[i]);
    for (uint32_t pixel = 0, at = 0; pixel < to->pixels; pixel++, at += to->c) {
        channel_put(&ch, pixel, pair_sum(&pair, at), gain);
    }
}

#if KERNELS_DSP

/* Two errors of four neighbouring channels; the order is that of elementwise_armv7em.S. */
struct four_pairs {
    const int8_t *a, *b;
    uint32_t c, pixels;
    const uint8_t *mask; /* byte of pixel 0 */
    uint32_t mask_step, bit;
    float a_unit[4], b_unit[4];
};

/* peaks[4] = the largest magnitudes of the sums that pass; q[pixel * c + lane] = rint(sum * gain[lane]). */
void peaks_of_pairs(const struct four_pairs *pairs, float *peaks);
void put_pairs(const struct four_pairs *pairs, const float *gains, int8_t *q);

#if KERNELS_MVE

/* The same of units that are 0 or neither very small nor very large: no sum is a subnormal float, which Helium takes for 0,
 * and none is no number. elementwise_mve.S. */
void peaks_of_four(const struct four_pairs *pairs, float *peaks);
void put_sums_of_four(const struct four_pairs *pairs, const float *gains, int8_t *q);

/* True where all four are so: bits of floats from 2^-100 to 2^100 are those of integers in that order. */
ALWAYS_INLINE int are_usual(const float *units)
{
    uint32x4_t bits = vldrwq_u32((const uint32_t *)(const void *)units);
    mve_pred16_t seldom = vcmphiq_n_u32(vsubq_n_u32(bits, 27u << 23), 200u << 23);
    return vcmpneq_m_n_u32(bits, 0, seldom) == 0;
}

#endif

/* Channels i to i + 3 of error_add(); i is a multiple of 4. */
static void add_four_channels(const struct joint *to, uint32_t i)
{
    const struct channel ch = channel_of(to->out, to->clamp, to->c, i);
#if KERNELS_MVE
    struct four_pairs pairs; /* not cleared first */
    pairs.a = to->a->q + i;
    pairs.b = to->b->q + i;
    pairs.c = to->c;
    pairs.pixels = to->pixels;
    pairs.mask = ch.mask;
    pairs.mask_step = ch.mask_step;
    pairs.bit = ch.bit;
#else
    struct four_pairs pairs = {to->a->q + i, to->b->q + i, to->c, to->pixels, ch.mask, ch.mask_step, ch.bit, {0}, {0}};
#endif
    float peaks[4], gains[4];
    for (uint32_t j = 0; j < 4; j++) {
        pairs.a_unit[j] = to->a->scale[i + j] * to->a_factor;
        pairs.b_unit[j] = to->b->scale[i + j] * to->b_factor;
    }
#if KERNELS_MVE
    int usual = are_usual(pairs.a_unit) && are_usual(pairs.b_unit);
    usual ? peaks_of_four(&pairs, peaks) : peaks_of_pairs(&pairs, peaks);
#else
    peaks_of_pairs(&pairs, peaks);
#endif
    for (uint32_t j = 0; j < 4; j++) {
        gains[j] = channel_gain(peaks[j], channel_unit(to->clamp, i + j, 1.0f), &to->out->scale[i + j]);
    }
#if KERNELS_MVE
    if (usual) {
        put_sums_of_four(&pairs, gains, ch.q);
        return;
    }
#endif
    put_pairs(&pairs, gains, ch.q);
}

#endif

void error_add_s8(uint32_t pixels, uint32_t c, const struct error_s8 *a, float a_factor, const struct error_s8 *b,
                  float b_factor, const struct clamp *clamp, const struct error_s8 *out PACED)
{
    const struct joint to = {a, b, out, clamp, a_factor, b_factor, pixels, c};
    uint32_t i = PACE_OUTER();
#if KERNELS_DSP
    for (; pixels && c - i >= 4; i += 4) {
        if (PACE_STOP(i, 0, 8 * pixels * WORK_OUTPUT)) {
            return;
        }
        add_four_channels(&to, i);
    }
#endif
    for (; i < c; i++) {
        if (PACE_STOP(i, 0, 2 * pixels * WORK_OUTPUT)) {
            return;
        }
        add_channel(&to, i);
    }
}
