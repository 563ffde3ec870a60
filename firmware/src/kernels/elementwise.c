/* Residual add and the joints of the error graph. Contract: kernels/elementwise.h. */
#include "kernels/elementwise.h"

#include "channel.h"
#include "chip.h"

/* Stored value of one sum of an add before saturation: limited to +-1024, then zero added. */
ALWAYS_INLINE int32_t add_value(const struct add *p, int32_t a, int32_t b)
{
    float left = (float)(a - p->a_zero) * p->a_scale;
    float right = (float)(b - p->b_zero) * p->b_scale;
    float v = (left + right) / p->y_scale;
    return round_limited(v) + p->y_zero;
}

#if KERNELS_DSP
/* elementwise_armv7em.S; n: a multiple of 4, not 0. */
void add_values(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n);
#endif

/* n outputs without a mask. */
static void add_unmasked(const struct add *p, const int8_t *a, const int8_t *b, int8_t *y, uint32_t n)
{
    uint32_t i = 0;
#if KERNELS_DSP
    i = n & ~3u;
    if (i) {
        add_values(p, a, b, y, i);
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
    const struct add copy = *p;
    for (uint32_t pixel = 0; pixel < copy.pixels; pixel++) {
        for (uint32_t ch = 0, n; ch < c; ch += n, a += n, b += n, y += n) {
            n = c - ch < 8 ? c - ch : 8;
            *mask++ = add_masked(copy, a, b, y, n);
        }
    }
}

void error_pass_s8(uint32_t pixels, uint32_t c, const struct error_s8 *in, float factor, const struct clamp *clamp,
                   const struct error_s8 *out)
{
    const int8_t *from = in->q;
    int8_t *to = out->q;
    const uint8_t *mask = clamp->mask;
    if (!mask) {
        memmove(to, from, pixels * c);
    }
    for (uint32_t pixel = 0; mask && pixel < pixels; pixel++) {
        for (uint32_t ch = 0, bits = 0; ch < c; ch++, bits >>= 1) {
            bits = ch & 7u ? bits : *mask++;
            *to++ = bits & 1u ? *from : 0;
            from++;
        }
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

void error_add_s8(uint32_t pixels, uint32_t c, const struct error_s8 *a, float a_factor, const struct error_s8 *b,
                  float b_factor, const struct clamp *clamp, const struct error_s8 *out)
{
    for (uint32_t i = 0; i < c; i++) {
        struct channel ch = channel_of(out, clamp, c, i);
        struct pair pair = {a->q + i, b->q + i, a->scale[i] * a_factor, b->scale[i] * b_factor};
        float peak = pair_peak(&pair, &ch, pixels);
        float gain = channel_gain(peak, channel_unit(clamp, i, 1.0f), &out->scale[i]);
        for (uint32_t pixel = 0, at = 0; pixel < pixels; pixel++, at += c) {
            channel_put(&ch, pixel, pair_sum(&pair, at), gain);
        }
    }
}
