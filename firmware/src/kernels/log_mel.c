/* SPDX-License-Identifier: Apache-2.0 */
/* Sound to a spectrogram. Contract: kernels/log_mel.h. */
#include "kernels/log_mel.h"

#include <string.h>

#include "chip.h"

enum {
    SHIFT_MOST = 14,
    POWER_SHIFT = 26,
    LOG_STEPS = 64,
    LOG_REST = 9,
    OCTAVE = 4096,
    GAIN_SHIFT = 20,
    LEVEL_SHIFT = 2
};

/* log2(1 + i / 64) * 4096 */
static const uint16_t logs[LOG_STEPS + 1] = {
    0,    92,   182,  271,  358,  445,  530,  613,  696,  778,  858,  937,  1016, 1093, 1169, 1244, 1319,
    1392, 1465, 1536, 1607, 1677, 1746, 1814, 1882, 1949, 2015, 2080, 2145, 2208, 2272, 2334, 2396, 2457,
    2518, 2578, 2637, 2696, 2754, 2812, 2869, 2926, 2982, 3037, 3092, 3146, 3200, 3254, 3307, 3359, 3412,
    3463, 3514, 3565, 3615, 3665, 3715, 3764, 3812, 3861, 3908, 3956, 4003, 4050, 4096,
};

/* In the memory: how many samples are in, then the frame, then the FFT's numbers. */
struct heard {
    uint32_t count;
    uint32_t unused; /* what follows is 8-byte aligned */
};

struct complex {
    int32_t re, im;
};

static uint32_t align8(uint32_t n)
{
    return (n + 7u) & ~7u;
}

static int16_t *frame_of(void *memory)
{
    return (int16_t *)(void *)((uint8_t *)memory + sizeof(struct heard));
}

static struct complex *numbers_of(const struct log_mel *p, void *memory)
{
    return (struct complex *)(void *)((uint8_t *)frame_of(memory) + align8(2u * p->frame));
}

uint32_t log_mel_bytes(const struct log_mel *p)
{
    return (uint32_t)sizeof(struct heard) + align8(2u * p->frame) + 4u * p->fft;
}

void log_mel_begin(void *memory)
{
    ((struct heard *)memory)->count = 0;
}

/* z * w, of a twiddle as it lies in memory: cos below, -sin above. */
ALWAYS_INLINE struct complex times(struct complex z, uint32_t w)
{
#if KERNELS_DSP
    int32_t rr, ii, ri; /* gcc 12 has no name for SMULW */
    __asm__("smulwb %0, %1, %2" : "=r"(rr) : "r"(z.re), "r"(w));
    __asm__("smulwt %0, %1, %2" : "=r"(ii) : "r"(z.im), "r"(w));
    __asm__("smulwt %0, %1, %2" : "=r"(ri) : "r"(z.re), "r"(w));
    return (struct complex){rr - ii, __smlawb(z.im, (int32_t)w, ri)};
#else
    int64_t re = (int16_t)w, im = (int16_t)(w >> 16);
    int32_t rr = (int32_t)((z.re * re) >> 16), ii = (int32_t)((z.im * im) >> 16);
    int32_t ri = (int32_t)((z.re * im) >> 16), ir = (int32_t)((z.im * re) >> 16);
    return (struct complex){rr - ii, ri + ir};
#endif
}

ALWAYS_INLINE struct complex half(struct complex z)
{
    return (struct complex){z.re >> 1, z.im >> 1};
}

/* z + by, which gcc 12 is not to turn into a pointer of its own: there are not as many registers. */
ALWAYS_INLINE struct complex *further(struct complex *z, uint32_t by)
{
    z += by;
#if KERNELS_DSP
    __asm__("" : "+r"(z));
#endif
    return z;
}

/* Four numbers, quarter apart, to the sums of them that a stage makes. */
ALWAYS_INLINE void radix4(struct complex *z, uint32_t quarter, struct complex b, struct complex c, struct complex d)
{
    struct complex a = half(z[0]);
    struct complex s0 = {a.re + c.re, a.im + c.im}, s1 = {a.re - c.re, a.im - c.im};
    struct complex s2 = {b.re + d.re, b.im + d.im}, s3 = {b.re - d.re, b.im - d.im};
    z[0] = (struct complex){s0.re + s2.re, s0.im + s2.im};
    z = further(z, quarter);
    z[0] = (struct complex){s1.re + s3.im, s1.im - s3.re};
    z = further(z, quarter);
    z[0] = (struct complex){s0.re - s2.re, s0.im - s2.im};
    z = further(z, quarter);
    z[0] = (struct complex){s1.re - s3.im, s1.im + s3.re};
}

/* The stage whose numbers need no twiddles. Returns the length of its transforms. */
static uint32_t first_stage(struct complex *z, uint32_t n)
{
    if ((uint32_t)__builtin_ctz(n) % 2) {
        for (uint32_t i = 0; i < n; i += 2) {
            struct complex a = z[i], b = z[i + 1];
            z[i] = (struct complex){a.re + b.re, a.im + b.im};
            z[i + 1] = (struct complex){a.re - b.re, a.im - b.im};
        }
        return 2;
    }
    for (uint32_t i = 0; i < n; i += 4) {
        radix4(z + i, 1, half(z[i + 1]), half(z[i + 2]), half(z[i + 3]));
    }
    return 4;
}

#if KERNELS_DSP

/* log_mel_armv7em.S */
void log_mel_join(struct complex *z, const struct complex *last, uint32_t quarter, const int16_t *twiddles);

#else

/* All transforms of a stage, of 4 quarters each, up to `last`. */
static void log_mel_join(struct complex *z, const struct complex *last, uint32_t quarter, const int16_t *twiddles)
{
    for (; z < last; z += 3 * quarter) {
        const int16_t *w = twiddles;
        for (const struct complex *end = z + quarter; z < end; z++, w += 6) {
            struct complex b = times(z[quarter], load_u32(w)), c = times(z[2 * quarter], load_u32(w + 2));
            radix4(z, quarter, b, c, times(z[3 * quarter], load_u32(w + 4)));
        }
    }
}

#endif

/* The DFT of n numbers in place. Returns the twiddles that are left over. */
NEVER_INLINE const int16_t *transform(struct complex *z, uint32_t n, const int16_t *twiddles)
{
    for (uint32_t quarter = first_stage(z, n); quarter < n; quarter *= 4) {
        log_mel_join(z, z + n, quarter, twiddles);
        twiddles += 6 * quarter;
    }
    return twiddles;
}

/* Bits that differ from the one above them, in both of two samples. */
ALWAYS_INLINE uint32_t changes_of(const int16_t *x)
{
    uint32_t pair = load_u32(x);
    return pair ^ pair << 1;
}

/* How far a frame of an even number of samples can be shifted left. */
NEVER_INLINE uint32_t room(const int16_t *x, uint32_t frame)
{
    const int16_t *end = x + frame;
    uint32_t changes = frame & 2u ? changes_of(x) : 0;
    for (x += frame & 2u; x != end; x += 4) {
        changes |= changes_of(x) | changes_of(x + 2);
    }
    changes = (changes | changes >> 16) & 0xfffeu;
    return changes ? (uint32_t)__builtin_clz(changes) - 16 : SHIFT_MOST;
}

/* left: the products are shifted left, else right */
ALWAYS_INLINE void place_products(const struct log_mel *p, const int16_t *x, int left, uint32_t by, struct complex *z)
{
    const uint16_t *to = p->order;
    const int16_t *window = p->window;
    for (const int16_t *end = x + p->frame; x != end; x += 2, window += 2) {
        uint32_t pair = load_u32(x), w = load_u32(window);
        int32_t re = (int16_t)pair * (int16_t)w, im = (int16_t)(pair >> 16) * (int16_t)(w >> 16);
        re = left ? (int32_t)((uint32_t)re << by) : re >> by;
        im = left ? (int32_t)((uint32_t)im << by) : im >> by;
        z[*to++] = (struct complex){re, im};
    }
}

NEVER_INLINE void place_frame(const struct log_mel *p, const int16_t *x, uint32_t shift, struct complex *z)
{
    if (shift > p->in_shift) {
        place_products(p, x, 1, shift - p->in_shift, z);
    } else {
        place_products(p, x, 0, p->in_shift - shift, z);
    }
    for (uint32_t n = p->frame / 2u; n < p->fft / 2u; n++) {
        z[p->order[n]] = (struct complex){0, 0};
    }
}

ALWAYS_INLINE int32_t power(int32_t re, int32_t im)
{
    return (int32_t)(uint32_t)((uint64_t)((int64_t)re * re + (int64_t)im * im) >> POWER_SHIFT);
}

/* The power of each k of the real spectrum, in the place of Z[k]'s real part. */
NEVER_INLINE void split(struct complex *z, uint32_t n, const int16_t *twiddles)
{
    for (uint32_t k = 1; k <= n / 2; k++, twiddles += 2) {
        struct complex a = half(z[k]), b = half(z[n - k]);
        struct complex even = {(a.re + b.re) >> 1, (a.im - b.im) >> 1}, odd = {a.im + b.im, b.re - a.re};
        odd = times(odd, load_u32(twiddles));
        z[n - k].re = power(even.re - odd.re, even.im - odd.im);
        z[k].re = power(even.re + odd.re, even.im + odd.im);
    }
}

/* log2 in OCTAVEs. v > 0 */
static int32_t log_of(uint64_t v)
{
    uint32_t high = (uint32_t)(v >> 32), bit = high ? 63 : 31, top = high ? high : (uint32_t)v;
    uint32_t zeros = (uint32_t)__builtin_clz(top);
    top <<= zeros;
    if (high && zeros) {
        top |= (uint32_t)v >> (32 - zeros);
    }
    bit -= zeros;
    uint32_t i = (top >> 25) & (LOG_STEPS - 1u), rest = (top >> 16) & ((1u << LOG_REST) - 1u);
    return (int32_t)(bit * OCTAVE + logs[i] + (((uint32_t)(logs[i + 1] - logs[i]) * rest) >> LOG_REST));
}

/* Each band's logarithm less base: as a value of `row`, or as one of `levels` where row, a literal, is NULL. */
ALWAYS_INLINE void put_bands(const struct log_mel *p, const struct complex *z, uint32_t shift, int32_t base,
                             uint8_t *row, int16_t *levels)
{
    const uint16_t *weight = p->weights, *bound = p->bounds;
    uint32_t gain = p->gain;
    uint64_t offset = (uint64_t)p->offset << 2 * shift;
    base += (int32_t)shift * (2 * OCTAVE);
    for (uint32_t b = 0, bands = p->bands; b < bands; b++, bound += 2) {
        const struct complex *at = z + bound[0];
        uint64_t energy = offset;
        for (uint32_t left = bound[1]; left != 0; left--) {
            energy += (uint64_t)(uint32_t)at++->re * *weight++;
        }
        if (!row) {
            int32_t level = (log_of(energy) - base) >> LEVEL_SHIFT;
            levels[b] = (int16_t)(level > INT16_MAX ? INT16_MAX : level < INT16_MIN ? INT16_MIN : level);
            continue;
        }
        int64_t value = ((int64_t)(log_of(energy) - base) * gain + (1 << (GAIN_SHIFT - 1))) >> GAIN_SHIFT;
        row[b] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
    }
}

NEVER_INLINE void bands(const struct log_mel *p, const struct complex *z, uint32_t shift, uint8_t *row)
{
    put_bands(p, z, shift, p->base, row, NULL);
}

NEVER_INLINE void levels_of(const struct log_mel *p, const struct complex *z, uint32_t shift, int32_t mid,
                            int16_t *levels)
{
    put_bands(p, z, shift, p->base + mid, NULL, levels);
}

/* Samples to an earlier place, or another one. newlib's own functions go byte by byte. */
NEVER_INLINE void copy(int16_t *to, const uint8_t *from, uint32_t count)
{
    for (; count >= 4; count -= 4, to += 4, from += 8) {
        uint32_t first = load_u32(from), second = load_u32(from + 4);
        store_u32(to, first);
        store_u32(to + 2, second);
    }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(to + i, from + 2 * i, sizeof *to);
    }
}

uint32_t log_mel_hear_s16(const struct log_mel *p, void *memory, const uint8_t *samples, uint32_t count)
{
    struct heard *heard = memory;
    uint32_t missing = p->frame - heard->count, taken = count < missing ? count : missing;
    copy(frame_of(memory) + heard->count, samples, taken);
    heard->count += taken;
    return taken;
}

/* The spectrum of a frame that is complete, and how far it was shifted. */
NEVER_INLINE uint32_t spectrum(const struct log_mel *p, void *memory)
{
    int16_t *frame = frame_of(memory);
    struct complex *z = numbers_of(p, memory);
    uint32_t n = p->fft / 2u, shift = room(frame, p->frame);
    place_frame(p, frame, shift, z);
    split(z, n, transform(z, n, p->twiddles));
    return shift;
}

/* Keeps what the next frame has of this one. */
static void go_on(const struct log_mel *p, struct heard *heard)
{
    int16_t *frame = frame_of(heard);
    heard->count = (uint32_t)p->frame - p->hop;
    copy(frame, (const uint8_t *)(frame + p->hop), heard->count);
}

uint32_t log_mel_row_u8(const struct log_mel *p, void *memory, uint8_t *row)
{
    struct heard *heard = memory;
    if (heard->count < p->frame) {
        return 0;
    }
    uint32_t shift = spectrum(p, memory);
    bands(p, numbers_of(p, memory), shift, row);
    go_on(p, heard);
    return 1;
}

uint32_t log_mel_levels_s16(const struct log_mel *p, void *memory, int32_t mid, int16_t *levels)
{
    struct heard *heard = memory;
    if (heard->count < p->frame) {
        return 0;
    }
    uint32_t shift = spectrum(p, memory);
    levels_of(p, numbers_of(p, memory), shift, mid, levels);
    go_on(p, heard);
    return 1;
}
