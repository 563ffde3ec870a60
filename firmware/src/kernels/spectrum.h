/* SPDX-License-Identifier: Apache-2.0 */
/* The spectrum of a frame, of which kernels/log_mel.h makes a row and says what is computed. */
#ifndef KERNELS_SPECTRUM_H
#define KERNELS_SPECTRUM_H

#include "kernels/log_mel.h"

struct complex {
    int16_t re, im;
};

/* Bytes that the function below works in: numbers of the FFT, then powers. */
uint32_t spectrum_bytes(const struct log_mel *p);

/* P[1..fft / 2 - 1] of a frame. Returns P; shift: how far the samples were shifted left
 *
 * x       int16, 8-byte aligned: the frame, and what must be readable behind it, whatever it is, up to 2 * fft bytes
 * memory  spectrum_bytes, 8-byte aligned, and behind the frame */
const int32_t *spectrum_of(const struct log_mel *p, const int16_t *x, void *memory, int32_t *shift);

#endif
