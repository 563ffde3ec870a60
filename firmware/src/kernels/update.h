/* SPDX-License-Identifier: Apache-2.0 */
/* The step of one trained weight: stochastic rounding, fraction bits, saturation. */
#ifndef KERNELS_UPDATE_H
#define KERNELS_UPDATE_H

#include "chip.h"
#include "kernels/conv2d.h"

/* (q + noise) >> shift, q = round_step(step), noise < 2^shift. */
ALWAYS_INLINE int32_t stochastic_shift(float step, uint32_t noise, uint32_t shift)
{
#if KERNELS_DSP
    /* Saturates a little later than round_step: beyond every weight and bias range that is left of it. */
    return __qadd(round_nearest(step), (int32_t)noise) >> shift;
#else
    return (round_step(step) + (int32_t)noise) >> shift;
#endif
}

/* Fraction of element `index` in units of 2^-frac_bits, signed. */
ALWAYS_INLINE int32_t fraction_get(const struct trained_weights *w, uint32_t index, uint32_t bits)
{
    if (bits == 8) {
        return (int8_t)w->frac[index];
    }
    uint32_t byte = w->frac[index >> 1];
    uint32_t nibble = (index & 1u) ? byte >> 4 : byte & 15u;
    return (int32_t)(nibble ^ 8u) - 8;
}

ALWAYS_INLINE void fraction_put(const struct trained_weights *w, uint32_t index, int32_t fraction, uint32_t bits)
{
    if (bits == 8) {
        w->frac[index] = (uint8_t)fraction;
        return;
    }
    uint32_t shift = (index & 1u) * 4u;
    uint32_t kept = w->frac[index >> 1] & (0xf0u >> shift);
    w->frac[index >> 1] = (uint8_t)(kept | (((uint32_t)fraction & 15u) << shift));
}

/* Gradients of neighbouring weights: step i is factor * (sums[i * stride] - shift), in units of 2^-16. */
struct steps {
    const int32_t *sums;
    uint32_t stride;
    int32_t shift;
    float factor;
};

/* w[index] -= step, noise: 16 random bits. bits: w->frac_bits, a literal. */
ALWAYS_INLINE void update_weight(const struct trained_weights *w, uint32_t index, float step, uint32_t noise,
                                 uint32_t bits)
{
    uint32_t shift = 16u - bits;
    int32_t limit = 127 << bits, value = w->w[index] * (1 << bits);
    if (bits) {
        value += fraction_get(w, index, bits);
    }
    value -= stochastic_shift(step, noise & ((1u << shift) - 1u), shift);
    value = value > limit ? limit : value < -limit ? -limit : value;
    int32_t whole = (value + ((1 << bits) >> 1)) >> bits;
    w->w[index] = (int8_t)whole;
    if (bits) {
        fraction_put(w, index, value - whole * (1 << bits), bits);
    }
}

/* random16() of `index` and its neighbour, that of the even one below. */
ALWAYS_INLINE uint32_t random_pair(uint32_t key, uint32_t index)
{
    return hash32(key + (index >> 1) * 0x9e3779b9u);
}

/* The next step. */
ALWAYS_INLINE float take_step(struct steps *steps)
{
    float step = steps->factor * (float)(*steps->sums - steps->shift);
    steps->sums += steps->stride;
    return step;
}

/* update_weights(); w and steps are copies, which no store of a weight can change. */
ALWAYS_INLINE void update_body(struct trained_weights w, uint32_t index, uint32_t count, struct steps steps,
                               uint32_t key, uint32_t bits)
{
    for (uint32_t end = index + count; index < end; index++) {
        uint32_t noise = random_pair(key, index);
        if ((index & 1u) == 0) {
            update_weight(&w, index, take_step(&steps), noise & 0xffffu, bits);
            if (++index == end) {
                break;
            }
        }
        update_weight(&w, index, take_step(&steps), noise >> 16, bits);
    }
}

#if KERNELS_MVE
#include "update_mve.h"
#elif KERNELS_DSP

/* Neighbouring weights without fraction bits, the first of an even index; the order is that of update_armv7em.S. */
struct pairs {
    const int32_t *sums;
    uint32_t step;   /* bytes from sum to sum */
    int32_t shift;   /* as in struct steps */
    int8_t *w;       /* of the first */
    uint32_t hashed; /* what hash32() makes the noise of the first two */
    float factor;
};

/* One step of `count` pairs of them, at least one. */
void descend_pairs(const struct pairs *at, uint32_t count);

/* update_body() without fraction bits. */
static inline void update_pairs(const struct trained_weights *w, uint32_t index, uint32_t count, struct steps steps,
                                uint32_t key)
{
    uint32_t end = index + count;
    if (count && (index & 1u)) {
        update_weight(w, index, take_step(&steps), random_pair(key, index) >> 16, 0);
        index++;
    }
    uint32_t pairs = (end - index) / 2;
    if (pairs) {
        const struct pairs at = {
            steps.sums, 4 * steps.stride, steps.shift, w->w + index, key + (index >> 1) * 0x9e3779b9u, steps.factor};
        descend_pairs(&at, pairs);
        steps.sums += 2 * pairs * steps.stride;
        index += 2 * pairs;
    }
    if (index < end) {
        update_weight(w, index, take_step(&steps), random_pair(key, index) & 0xffffu, 0);
    }
}

#endif

/* One step of the weights index .. index + count. key: random_key of this tensor and step. */
static inline void update_weights(const struct trained_weights *w, uint32_t index, uint32_t count,
                                  const struct steps *steps, uint32_t key)
{
#if KERNELS_MVE
    if (w->frac_bits == 8) {
        update_fours(*w, index, count, *steps, key, 8);
    } else if (w->frac_bits == 0) {
        update_fours(*w, index, count, *steps, key, 0);
    } else {
        update_body(*w, index, count, *steps, key, 4);
    }
#else
    if (w->frac_bits == 8) {
        update_body(*w, index, count, *steps, key, 8);
    } else if (w->frac_bits == 4) {
        update_body(*w, index, count, *steps, key, 4);
    } else {
#if KERNELS_DSP
        update_pairs(w, index, count, *steps, key);
#else
        update_body(*w, index, count, *steps, key, 0);
#endif
    }
#endif
}

#endif
