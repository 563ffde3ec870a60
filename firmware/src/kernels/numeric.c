/* SPDX-License-Identifier: Apache-2.0 */
/* exp and log in float32. Contract: kernels/numeric.h.
 *
 * The polynomials interpolate their functions at Chebyshev nodes; with the roundings, the results are within 2 units
 * in the last place over the whole range.
 */
#include "kernels/numeric.h"

#include "chip.h"

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* ln 2 in two parts; the first has 9 significant bits, so that n times it is exact. */
#define LN2_HIGH 0x1.63p-1f
#define LN2_LOW -0x1.bd0106p-13f

/* exp(x) = 2^n * exp(r), |r| <= ln 2 / 2, exp(r) = 1 + r + r^2 * polynomial(r). Above 88 the result is that of 88;
 * of something that is no number it is 0. */
float exp_f32(float x)
{
    if (!(x >= -87.0f)) {
        return 0.0f;
    }
    x = x > 88.0f ? 88.0f : x;
    float n = rintf(x * 0x1.715476p+0f);
    float r = x - n * LN2_HIGH;
    r = r - n * LN2_LOW;
    float y = 0x1.a12516p-13f;
    y = y * r + 0x1.6d434ep-10f;
    y = y * r + 0x1.1110ep-7f;
    y = y * r + 0x1.5554e8p-5f;
    y = y * r + 0x1.555556p-3f;
    y = y * r + 0x1.0p-1f;
    y = y * (r * r) + r;
    y = y + 1.0f;
    return y * float_of((uint32_t)((int32_t)n + 127) << 23);
}

/* log(x) = e * ln 2 + log(1 + r), 1 + r in [sqrt(1/2), sqrt(2)), log(1 + r) = r - r^2 / 2 + r^3 * polynomial(r). */
float log_f32(float x)
{
    uint32_t bits = bits_of(x);
    int32_t exponent = (int32_t)(bits >> 23) - 126;
    float r = float_of((bits & 0x007fffffu) | 0x3f000000u); /* in [1/2, 1) */
    if (r < 0x1.6a09e6p-1f) {
        exponent -= 1;
        r = r + r;
    }
    r = r - 1.0f;
    float z = r * r;
    float y = 0x1.1d8ea6p-4f;
    y = y * r - 0x1.d635bcp-4f;
    y = y * r + 0x1.dea282p-4f;
    y = y * r - 0x1.fcf4c6p-4f;
    y = y * r + 0x1.23d21ap-3f;
    y = y * r - 0x1.555b4ap-3f;
    y = y * r + 0x1.999d5ap-3f;
    y = y * r - 0x1.fffffcp-3f;
    y = y * r + 0x1.555554p-2f;
    y = y * r * z;
    float e = (float)exponent;
    y = y + e * LN2_LOW;
    y = y - 0.5f * z;
    return (r + y) + e * LN2_HIGH;
}

float multiplier_f32(int32_t word)
{
    return multiplier_of(word);
}
