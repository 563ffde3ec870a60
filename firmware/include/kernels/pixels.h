/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of an image as a model's input, with Helium; other cores do it in session.c, one by one. */
#ifndef KERNELS_PIXELS_H
#define KERNELS_PIXELS_H

#include <stdint.h>

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)

#define PIXELS_AT_ONCE 1

/* y[i] = rint(clamp(pixels[i] * gain[c] + offset[c], -128, 127)), c = (channel + i) modulo `channels`. */
void pixels_s8(int8_t *y, const uint8_t *pixels, uint32_t n, uint32_t channel, const float *gain, const float *offset,
               uint32_t channels);

#else
#define PIXELS_AT_ONCE 0
#endif

#endif
