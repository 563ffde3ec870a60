/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of cepstral coefficients: what kernels/log_mel.h makes of sound, but for its last line, and an orthonormal DCT-II
 * over the bands.
 *
 *     level[b]  int16, saturated, of L - base - mid: 1024 an octave of power, 0 half-way up from the floor
 *     C[c]      = sum of level[b] * dct[c][b] >> 15, summed in 64 bits
 *     row[c]    = min(255, max(0, ((C[c] * gain + 2^17) >> 18) + zero))
 *
 * dct[c][b] is 2^15 sqrt((c ? 2 : 1) / bands) cos(pi c (b + 1/2) / bands). All shifts to the right round down.
 * reference: tools/samples/log_mel.py */
#ifndef KERNELS_MFCC_H
#define KERNELS_MFCC_H

#include "kernels/log_mel.h"

struct mfcc {
    const int16_t *dct; /* [coefficients][bands] */
    int32_t mid;
    uint16_t coefficients;
    uint8_t zero; /* what a coefficient of 0 gives */
};

/* Bytes of the memory that log_mel_begin, log_mel_hear_s16 and mfcc_row_u8 share. 8-byte aligned. */
uint32_t mfcc_bytes(const struct log_mel *front);

/* The row of a frame that is complete, uint8 [coefficients]. Returns 0, and leaves the row, where samples are missing.
 * front: its gain is that of the coefficients */
uint32_t mfcc_row_u8(const struct log_mel *front, const struct mfcc *p, void *memory, uint8_t *row);

#endif
