/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of vibration: how strong a frame is in all, then its bands as kernels/log_mel.h has them, of equal width in Hz.
 *
 *     square   = frame * (sum of x * x) - (sum of x)^2: of a frame x the square of its RMS about its mean, times frame^2
 *     row[0]   = min(255, ((L - base) * gain + 2^17) >> 18), L = log2(square + floor) * 1024, base that of floor alone
 *     row[1..] = those of kernels/log_mel.h
 *
 * A mean that is no vibration, as gravity, is no part of row[0]. log2 is that of the middle of the 128th of an octave in which
 * its number lies. All shifts to the right round down. reference: tools/samples/log_mel.py */
#ifndef KERNELS_VIBRATION_H
#define KERNELS_VIBRATION_H

#include "kernels/log_mel.h"

struct vibration {
    uint64_t floor; /* of square: what gives 0. From 1 on, below 2^52 */
    int32_t base;
};

/* The row of a frame that is complete, uint8 [1 + bands]. Returns 0, and leaves the row, where samples are missing. Memory is
 * that of log_mel_bytes. */
uint32_t vibration_row_u8(const struct log_mel *front, const struct vibration *p, void *memory, uint8_t *row);

#endif
