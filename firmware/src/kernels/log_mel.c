/* SPDX-License-Identifier: Apache-2.0 */
/* Sound to a spectrogram. Contract: kernels/log_mel.h. */
#include "kernels/log_mel.h"

#include <stddef.h>
#include <string.h>

#include "chip.h"
#include "spectrum.h"

enum { LOG_STEPS = 128, OCTAVE = 1024, OCTAVES = 31, GAIN_SHIFT = 18 };

/* log2 of the middle of each step of an octave, * 1024 */
static const uint16_t logs[LOG_STEPS] = {
    6,   17,  29,  40,  51,  62,  73,  84,  95,  106, 116, 127, 138, 148, 159,  169,  179,  189,  199, 209, 219, 229,
    239, 249, 259, 268, 278, 288, 297, 306, 316, 325, 334, 343, 353, 362, 371,  380,  388,  397,  406, 415, 424, 432,
    441, 449, 458, 466, 475, 483, 491, 500, 508, 516, 524, 532, 540, 548, 556,  564,  572,  580,  587, 595, 603, 610,
    618, 626, 633, 641, 648, 656, 663, 670, 678, 685, 692, 699, 707, 714, 721,  728,  735,  742,  749, 756, 763, 770,
    776, 783, 790, 797, 803, 810, 817, 823, 830, 837, 843, 850, 856, 863, 869,  875,  882,  888,  894, 901, 907, 913,
    919, 926, 932, 938, 944, 950, 956, 962, 968, 974, 980, 986, 992, 998, 1004, 1010, 1015, 1021,
};

/* In the memory: how many samples are in, then the frame, then what the spectrum is made in. */
struct heard {
    uint32_t count;
    uint32_t unused; /* what follows is 8-byte aligned */
};

static uint32_t align8(uint32_t n)
{
    return (n + 7u) & ~7u;
}

static int16_t *frame_of(void *memory)
{
    return (int16_t *)(void *)((uint8_t *)memory + sizeof(struct heard));
}

uint32_t log_mel_bytes(const struct log_mel *p)
{
    return (uint32_t)sizeof(struct heard) + align8(2u * p->frame) + spectrum_bytes(p);
}

void log_mel_begin(void *memory)
{
    ((struct heard *)memory)->count = 0;
}

#if KERNELS_DSP

/* log_mel_armv7em.S: what is below for other chips, and a copy of pieces of 16 samples to a word. */
void log_mel_values(const int32_t *power, const uint16_t *counts, const uint32_t *weights, int32_t offset,
                    const uint16_t *steps, uint32_t bands, uint8_t *row, const uint32_t *line);
void log_mel_heights(const int32_t *power, const uint16_t *counts, const uint32_t *weights, int32_t offset,
                     const uint16_t *steps, uint32_t bands, int16_t *levels, const uint32_t *line);
void log_mel_copy(int16_t *to, const uint8_t *from, uint32_t pieces);

#else

/* A walk along the spectrum. rising: of the band that it reaches next */
struct walk {
    const int32_t *power;
    const uint16_t *counts;
    const uint32_t *weights;
    int32_t rising;
};

/* To the next centre. Returns the energy of the band that ends there. */
static int32_t walked(struct walk *w, int32_t offset)
{
    int32_t falling = w->rising;
    w->rising = offset;
    for (uint32_t left = *w->counts++; left; left--) {
        int64_t power = *w->power++;
        uint32_t weights = *w->weights++;
        w->rising += (int32_t)(power * (int16_t)weights >> 16);
        falling += (int32_t)(power * (int16_t)(weights >> 16) >> 16);
    }
    return falling;
}

/* log2 in OCTAVEs, less OCTAVES of them. */
static int32_t log_of(int32_t energy, const uint16_t *steps)
{
    uint32_t v = (energy < 0 ? 0 : (uint32_t)energy) + 1, zeros = (uint32_t)__builtin_clz(v);
    return steps[(v << zeros >> 24) - LOG_STEPS] - (int32_t)zeros * OCTAVE;
}

/* The row of a spectrum. steps: logs, line: the gain of each logarithm, and what is added then */
static void log_mel_values(const int32_t *power, const uint16_t *counts, const uint32_t *weights, int32_t offset,
                           const uint16_t *steps, uint32_t bands, uint8_t *row, const uint32_t *line)
{
    struct walk w = {power, counts, weights, 0};
    walked(&w, offset);
    for (uint32_t b = 0; b < bands; b++) {
        int32_t value = (int32_t)((uint32_t)log_of(walked(&w, offset), steps) * line[0] + line[1]) >> GAIN_SHIFT;
        row[b] = value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
    }
}

/* The logarithms, and what the line adds; they have no gain. */
static void log_mel_heights(const int32_t *power, const uint16_t *counts, const uint32_t *weights, int32_t offset,
                            const uint16_t *steps, uint32_t bands, int16_t *levels, const uint32_t *line)
{
    struct walk w = {power, counts, weights, 0};
    walked(&w, offset);
    for (uint32_t b = 0; b < bands; b++) {
        int32_t level = log_of(walked(&w, offset), steps) + (int32_t)line[1];
        levels[b] = (int16_t)(level > INT16_MAX ? INT16_MAX : level < INT16_MIN ? INT16_MIN : level);
    }
}

#endif

/* Samples to an earlier place, or another one. newlib's own functions go byte by byte. */
NEVER_INLINE void copy(int16_t *to, const uint8_t *from, uint32_t count)
{
#if KERNELS_DSP
    if (((uintptr_t)to & 3u) == 0 && count >= 16) {
        uint32_t many = count & ~15u;
        log_mel_copy(to, from, count / 16);
        to += many;
        from += 2 * many;
        count -= many;
    }
#endif
    for (; count >= 2; count -= 2, to += 2, from += 4) {
        store_u32(to, load_u32(from));
    }
    if (count) {
        memcpy(to, from, sizeof *to);
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

/* The powers of a frame that is complete, from the first that a band has; of each band the offset, and where its
 * logarithms begin. */
static const int32_t *heard_powers(const struct log_mel *p, void *memory, int32_t *offset, int32_t *base)
{
    int16_t *frame = frame_of(memory);
    int32_t shift;
    const int32_t *power = spectrum_of(p, frame, (uint8_t *)frame + align8(2u * p->frame), &shift);
    uint32_t down = (uint32_t)(p->shift_most - shift) * 2;
    *offset = down < 32 ? (int32_t)(p->offset >> down) : 0;
    *base = p->base + (2 * shift - OCTAVES) * OCTAVE;
    return power + p->lowest;
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
    int32_t offset, base;
    const int32_t *power = heard_powers(p, memory, &offset, &base);
    const uint32_t line[2] = {p->gain, (1u << (GAIN_SHIFT - 1)) - (uint32_t)base * p->gain};
    log_mel_values(power, p->counts, p->weights, offset, logs, p->bands, row, line);
    go_on(p, heard);
    return 1;
}

const int16_t *log_mel_frame(const struct log_mel *p, void *memory)
{
    return ((struct heard *)memory)->count < p->frame ? NULL : frame_of(memory);
}

int32_t log_mel_octaves(uint64_t v)
{
    uint32_t zeros = (uint32_t)__builtin_clzll(v);
    return logs[(uint32_t)(v << zeros >> 56) - LOG_STEPS] + (63 - (int32_t)zeros) * OCTAVE;
}

uint32_t log_mel_levels_s16(const struct log_mel *p, void *memory, int32_t mid, int16_t *levels)
{
    struct heard *heard = memory;
    if (heard->count < p->frame) {
        return 0;
    }
    int32_t offset, base;
    const int32_t *power = heard_powers(p, memory, &offset, &base);
    const uint32_t line[2] = {1, 0u - (uint32_t)(base + mid)};
    log_mel_heights(power, p->counts, p->weights, offset, logs, p->bands, levels, line);
    go_on(p, heard);
    return 1;
}
