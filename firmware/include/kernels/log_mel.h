/* SPDX-License-Identifier: Apache-2.0 */
/* Sound to rows of a spectrogram: window, FFT, mel filter bank and logarithm, in integers.
 *
 * A frame of x, int16 [frame], becomes `bands` values 0..255, `hop` samples after the frame before it:
 *
 *     shift   how far the frame can be shifted left: 14 where (x ^ x << 1) & 0xfffe, all of them or-ed, is 0; else so far
 *             that its highest bit comes to bit 15
 *     z[n]    = x[n] * window[n] << shift >> in_shift; 0 beyond the frame; even n is real, odd imaginary, of fft / 2 numbers
 *     Z       their DFT over 2^stages, by radix-4 stages that halve, after one of radix 2 that does not where fft / 2 is
 *             no power of 4. A product with a twiddle w is (z * w) >> 16, its sum with the others not rounded again
 *     X[k]    half of the DFT of the real z, 0 < k < fft / 2, from Z[k] and Z[fft / 2 - k]
 *     P[k]    = (re * re + im * im) >> 26, which 32 bits hold for a Hann window
 *     E[b]    = sum of P[k] * weights, + (offset << 2 * shift), in 64 bits
 *     row[b]  = min(255, ((L - base) * gain + 2^19) >> 20), L = log2(E) * 4096 - shift * 8192, and 0 where it is negative
 *
 * log2 is that of the highest bit, and for the 15 bits below it a straight line between 65 points. All shifts to the
 * right round down. reference: tools/samples/log_mel.py, the same in NumPy. */
#ifndef KERNELS_LOG_MEL_H
#define KERNELS_LOG_MEL_H

#include <stdint.h>

/* Tables are made at conversion. */
struct log_mel {
    uint16_t frame, hop, fft, bands; /* samples; frame and hop even, hop <= frame <= fft, a power of two, 64..2048 */
    uint16_t in_shift, gain;
    int32_t base;
    uint32_t offset;
    const int16_t *window;   /* [frame] 2^15 is 1 */
    const uint16_t *order;   /* [fft / 2] where the FFT wants number n */
    const int16_t *twiddles; /* cos and -sin of each stage's w, w^2 and w^3, then those of the split, 1..fft / 4 */
    const uint16_t *bounds;  /* [bands][2] of a band: its first k, and how many */
    const uint16_t *weights; /* of each band's k, one behind the other, 2^15 is 1 */
};

/* Bytes of the memory that the functions below share. 8-byte aligned. */
uint32_t log_mel_bytes(const struct log_mel *p);

/* Forget what was heard. */
void log_mel_begin(void *memory);

/* Take samples, little-endian int16 [count] of any alignment, up to the end of the next frame. Returns how many were taken. */
uint32_t log_mel_hear_s16(const struct log_mel *p, void *memory, const uint8_t *samples, uint32_t count);

/* The row of a frame that is complete, uint8 [bands]. Returns 0, and leaves the row, where samples are missing. */
uint32_t log_mel_row_u8(const struct log_mel *p, void *memory, uint8_t *row);

/* The same frame as int16 [bands], (L - base - mid) >> 2 saturated: kernels/mfcc.h. */
uint32_t log_mel_levels_s16(const struct log_mel *p, void *memory, int32_t mid, int16_t *levels);

#endif
