/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of weights and biases with Helium, four at a time: a part of update.h and of conv2d_update.c.
 *
 * Helium takes a subnormal float for 0. Here that cannot be seen: a factor so small makes no step of 1, and neither does a
 * product.
 */
#ifndef KERNELS_UPDATE_MVE_H
#define KERNELS_UPDATE_MVE_H

#include "update.h"

enum { GOLDEN = (int32_t)0x9e3779b9u };

/* What random_pair() hashes, of elements index .. index + 3. */
ALWAYS_INLINE uint32x4_t pairs_at(uint32_t key, uint32_t index)
{
    return vaddq_n_u32(vmulq_n_u32(vshrq_n_u32(vidupq_n_u32(index, 1), 1), (uint32_t)GOLDEN), key);
}

/* To the right half of a pair's hash: 0 or -16. */
ALWAYS_INLINE int32x4_t halves_at(uint32_t index)
{
    uint32x4_t odd = vandq_u32(vidupq_n_u32(index, 1), vdupq_n_u32(1));
    return vnegq_s32(vreinterpretq_s32_u32(vshlq_n_u32(odd, 4)));
}

/* random16() in the low halves. */
ALWAYS_INLINE uint32x4_t random_four(uint32x4_t x, int32x4_t halves)
{
    x = veorq_u32(x, vshrq_n_u32(x, 16));
    x = vmulq_n_u32(x, 0x7feb352du);
    x = veorq_u32(x, vshrq_n_u32(x, 15));
    x = vmulq_n_u32(x, 0x846ca68bu);
    x = veorq_u32(x, vshrq_n_u32(x, 16));
    return vshlq_u32(x, halves);
}

/* stochastic_shift() before the shift. */
ALWAYS_INLINE int32x4_t noisy_steps(float32x4_t step, uint32x4_t noise)
{
    return vqaddq_s32(vcvtnq_s32_f32(step), vreinterpretq_s32_u32(noise));
}

/* update_body() of 0 or 8 fraction bits. */
ALWAYS_INLINE void update_fours(struct trained_weights w, uint32_t index, uint32_t count, struct steps steps,
                                uint32_t key, uint32_t bits)
{
    uint32x4_t pairs = pairs_at(key, index), places = vmulq_n_u32(vidupq_n_u32(0, 1), steps.stride);
    int32x4_t halves = halves_at(index);
    for (uint32_t left = count; left; left = left < 4 ? 0 : left - 4, index += 4, steps.sums += 4 * steps.stride) {
        mve_pred16_t live = vctp32q(left);
        int32x4_t sums = vldrwq_gather_shifted_offset_z_s32(steps.sums, places, live);
        float32x4_t step = vmulq_n_f32(vcvtq_f32_s32(vsubq_n_s32(sums, steps.shift)), steps.factor);
        uint32x4_t noise = random_four(pairs, halves);
        int32x4_t value = vldrbq_z_s32(w.w + index, live), whole;
        if (bits) {
            noise = vandq_u32(noise, vdupq_n_u32(0xff));
            value = vaddq_s32(vshlq_n_s32(value, 8), vldrbq_z_s32((const int8_t *)w.frac + index, live));
            value = vsubq_s32(value, vshrq_n_s32(noisy_steps(step, noise), 8));
        } else {
            noise = vmovlbq_u16(vreinterpretq_u16_u32(noise));
            value = vsubq_s32(value, vshrq_n_s32(noisy_steps(step, noise), 16));
        }
        value = vmaxq_s32(vminq_s32(value, vdupq_n_s32(127 << bits)), vdupq_n_s32(-(127 << bits)));
        whole = value;
        if (bits) {
            whole = vrshrq_n_s32(value, 8);
            vstrbq_p_s32((int8_t *)w.frac + index, vsubq_s32(value, vshlq_n_s32(whole, 8)), live);
        }
        vstrbq_p_s32(w.w + index, whole, live);
        pairs = vaddq_n_u32(pairs, 2u * (uint32_t)GOLDEN);
    }
}

#endif
