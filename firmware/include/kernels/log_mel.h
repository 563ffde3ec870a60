/* SPDX-License-Identifier: Apache-2.0 */
/* Sound to rows of a spectrogram: window, FFT, filter bank and logarithm, in integers.
 *
 * A frame of x, int16 [frame], becomes `bands` values 0..255, `hop` samples after the frame before it. n = fft / 2:
 *
 *     shift   the largest up to shift_most that leaves the sum of x * x * 4^shift below 2^30. May be negative
 *     z[i]    = x[2 i] * window >> 16 - shift, and x[2 i + 1] as its imaginary part; 0 beyond the frame. int16
 *     Z       their DFT over 2^(stages - 1), decimated in frequency: radix 8 first where n is no power of 4, else radix 4
 *             alone. What leaves a stage but the last is halved: rounded down where no twiddle w is applied, else
 *             (z * w + 2^15) >> 16. Radix 8 turns by an eighth as such a product, of the doubled number
 *     P[k]    = (A + B >> 2) + T, P[n - k] = (A + B >> 2) - T, of A = |Z[k]|^2, B = |Z[n - k]|^2 and
 *             T = (Im(Z[k] Z[n - k]) * cos >> 32) + ((B - A) * sin / 2 >> 32) of pi k / n: half of |X[k]|^2, X the real DFT
 *     E[b]    = sum of (P[k] * weight >> 16), + (offset >> 2 * (shift_most - shift)), 0 where it is less, + 1
 *     row[b]  = min(255, ((L - base) * gain + 2^17) >> 18), L = log2(E) * 1024 - shift * 2048, and 0 where it is negative
 *
 * The sum of x * x bounds every sum of the FFT (Cauchy-Schwarz, with the squares of a Hann window, whose mean is 3/8) and
 * those of the bands (Parseval): nothing overflows, and nothing is halved but once a stage. The first stage multiplies
 * by w = 1 too, the others do not. log2 is that of the middle of the 128th of an octave in which E lies, 0.012 dB away at
 * most. All shifts to the right round down. reference: tools/samples/log_mel.py, the same in NumPy. */
#ifndef KERNELS_LOG_MEL_H
#define KERNELS_LOG_MEL_H

#include <stdint.h>

/* Tables are made at conversion. */
struct log_mel {
    uint16_t frame, hop, fft, bands; /* samples; frame and hop even, hop <= frame <= fft, a power of two, 64..2048 */
    uint16_t gain, lowest;           /* the lowest k that a band has */
    int32_t shift_most, base;
    uint32_t offset; /* at shift_most, below 2^30 */
    const uint32_t
        *opening; /* of each of the first stage's transforms the window of its pairs 1, 2 .. and 0, 2^15 is 1 and
                                 0 beyond the frame; its twiddles of number 1, 2, 3, or with radix 8 2, 4, 6, 1, 3, 5, 7 */
    const uint32_t *twiddles; /* of the other stages' numbers 1, 2, 3, but for those of w = 1 */
    const uint16_t *order;    /* [fft / 16][2] bytes before the last stage's transforms m and fft / 8 - m, m from 1 */
    const int32_t *circle;    /* [fft / 16][4][2] cos, 2^31 is 1, and half of sin, of k = m, m + fft / 8 .. */
    const uint16_t *counts;   /* [bands + 1] of the k below the first centre, between two centres, above the last */
    const uint32_t *weights;  /* of each of these k: in the band above and in that below; 2^15 is 1 */
};

/* Bytes of the memory that the functions below share. 8-byte aligned. */
uint32_t log_mel_bytes(const struct log_mel *p);

/* Forget what was heard. */
void log_mel_begin(void *memory);

/* Take samples, little-endian int16 [count] of any alignment, up to the end of the next frame. Returns how many were taken. */
uint32_t log_mel_hear_s16(const struct log_mel *p, void *memory, const uint8_t *samples, uint32_t count);

/* The row of a frame that is complete, uint8 [bands]. Returns 0, and leaves the row, where samples are missing. */
uint32_t log_mel_row_u8(const struct log_mel *p, void *memory, uint8_t *row);

/* The frame, int16 [frame], where it is complete; NULL where samples are missing. */
const int16_t *log_mel_frame(const struct log_mel *p, void *memory);

/* 1024 * log2 of a number from 1 on: of the middle of the 128th of an octave in which it lies. */
int32_t log_mel_octaves(uint64_t v);

/* The same frame as int16 [bands], L - base - mid saturated: kernels/mfcc.h. */
uint32_t log_mel_levels_s16(const struct log_mel *p, void *memory, int32_t mid, int16_t *levels);

#endif
