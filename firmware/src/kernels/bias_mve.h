/* SPDX-License-Identifier: Apache-2.0 */
/* Biases with Helium, four at a time: a part of conv2d_update.c. */
#ifndef KERNELS_BIAS_MVE_H
#define KERNELS_BIAS_MVE_H

#include "kernels/pace.h"
#include "update.h"

/* bias_shift() of four words. */
ALWAYS_INLINE int32x4_t bias_shifts(int32x4_t words)
{
    uint32x4_t exponent = vshrq_n_u32(vreinterpretq_u32_f32(multipliers_of_four(words)), 23);
    uint32x4_t shift = vqsubq_u32(vdupq_n_u32(UNIT_EXPONENT), exponent);
    return vreinterpretq_s32_u32(vminq_u32(shift, vdupq_n_u32(SHIFT_MAX)));
}

/* base_of() of the live of four channels. */
ALWAYS_INLINE int32x4_t bases_of_four(const struct trained_bias *bias, uint32_t ch, int32x4_t shift, mve_pred16_t live)
{
    if (bias->lean) {
        return vshlq_s32(vldrhq_z_s32(bias->lean + ch, live), vaddq_n_s32(shift, LEAN_SHIFT));
    }
    return vldrwq_z_s32(bias->base + ch, live);
}

void bias_expand_s32(uint32_t c, const struct trained_bias *bias, int32_t *b)
{
    for (uint32_t ch = 0, left = c; left; left = left < 4 ? 0 : left - 4, ch += 4) {
        mve_pred16_t live = vctp32q(left);
        int32x4_t shift = bias_shifts(vldrwq_z_s32(bias->m + ch, live));
        int32x4_t moved = vshlq_s32(vldrhq_z_s32(bias->delta + ch, live), shift);
        vstrwq_p_s32(b + ch, vaddq_s32(moved, bases_of_four(bias, ch, shift, live)), live);
    }
}

/* most_delta() of four; least: how many steps to the right. */
ALWAYS_INLINE int32x4_t most_deltas(int32x4_t room, int32x4_t least)
{
    uint32x4_t most = vshlq_u32(vreinterpretq_u32_s32(room), least);
    return vreinterpretq_s32_u32(vminq_u32(most, vdupq_n_u32(DELTA_MAX)));
}

/* Words of the live of four channels; whole, a literal: of all. */
ALWAYS_INLINE int32x4_t words_of_four(const int32_t *words, mve_pred16_t live, int whole)
{
    return whole ? vldrwq_s32(words) : vldrwq_z_s32(words, live);
}

/* descend_bias() of four channels from ch on, or of those that are live. factor: learning rate * scale * qas. */
ALWAYS_INLINE void descend_four(const struct trained_bias *bias, uint32_t ch, int32x4_t sums, float32x4_t factor,
                                uint32x4_t noise, mve_pred16_t live, int whole)
{
    int32x4_t shift = bias_shifts(words_of_four(bias->m + ch, live, whole)), right = vnegq_s32(shift);
    int32x4_t base = bases_of_four(bias, ch, shift, live);
    int32x4_t step = noisy_steps(vmulq_f32(factor, vcvtq_f32_s32(sums)), noise);
    int32x4_t delta = whole ? vldrhq_s32(bias->delta + ch) : vldrhq_z_s32(bias->delta + ch, live);
    int32x4_t limit = vdupq_n_s32(bias->limit);
    int32x4_t least = vnegq_s32(most_deltas(vaddq_s32(limit, base), right));
    delta = vsubq_s32(delta, vshrq_n_s32(step, 8));
    delta = vmaxq_s32(vminq_s32(delta, most_deltas(vsubq_s32(limit, base), right)), least);
    if (whole) {
        vstrhq_s32(bias->delta + ch, delta);
    } else {
        vstrhq_p_s32(bias->delta + ch, delta, live);
    }
}

/* sums[i] = errors of channel i of all pixels, for the live ones of eight. A half word holds the sum of 256 errors. */
static void sum_eight(const int8_t *q, uint32_t pixels, uint32_t c, mve_pred16_t live, int32_t *sums)
{
    int32x4_t low = vdupq_n_s32(0), high = low;
    for (uint32_t n; pixels; pixels -= n) {
        int16_t halves[8];
        int16x8_t sum = vdupq_n_s16(0);
        n = pixels < 256 ? pixels : 256;
        if (live == 0xffff) {
            for (uint32_t i = n; i; i--, q += c) {
                sum = vaddq_s16(sum, vldrbq_s16(q));
            }
        } else {
            for (uint32_t i = n; i; i--, q += c) {
                sum = vaddq_s16(sum, vldrbq_z_s16(q, live));
            }
        }
        vstrhq_s16(halves, sum);
        low = vaddq_s32(low, vldrhq_s32(halves));
        high = vaddq_s32(high, vldrhq_s32(halves + 4));
    }
    vstrwq_s32(sums, low);
    vstrwq_s32(sums + 4, high);
}

void bias_update_s32(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct trained_bias *bias,
                     const struct sgd *sgd PACED)
{
    uint32_t key = random_key(sgd->seed, sgd->step, bias->id);
    for (uint32_t ch = PACE_OUTER(); ch < c; ch += 8) {
        if (PACE_STOP(ch, 0, 8 * (pixels + WORK_OUTPUT))) {
            return;
        }
        int32_t sums[8];
        float factors[8];
        uint32_t n = c - ch < 8 ? c - ch : 8;
        sum_eight(ey->q + ch, pixels, c, vctp16q(n), sums);
        for (uint32_t i = 0; i < n; i++) { /* with subnormal floats */
            factors[i] = sgd->lr_bias * ey->scale[ch + i] * qas_of(bias, ch + i);
        }
        for (uint32_t i = 0; i < n; i += 4) {
            uint32x4_t noise = vandq_u32(random_four(pairs_at(key, ch + i), halves_at(0)), vdupq_n_u32(0xff));
            int32x4_t sum = vldrwq_s32(sums + i);
            float32x4_t factor = vldrwq_f32(factors + i);
            if (n - i >= 4) {
                descend_four(bias, ch + i, sum, factor, noise, 0xffff, 1);
            } else {
                descend_four(bias, ch + i, sum, factor, noise, vctp32q(n - i), 0);
            }
        }
    }
}

#endif
