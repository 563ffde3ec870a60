/* SPDX-License-Identifier: Apache-2.0 */
/* Vibration: RMS and bands. Contract: kernels/vibration.h. */
#include "kernels/vibration.h"

#include <stddef.h>

enum { GAIN_SHIFT = 18 };

/* frame^2 times the square of the RMS about the mean. */
static uint64_t square_of(const int16_t *x, uint32_t frame)
{
    int64_t squares = 0;
    int32_t sum = 0;
    for (uint32_t i = 0; i < frame; i++) {
        squares += x[i] * x[i];
        sum += x[i];
    }
    return (uint64_t)(frame * squares - (int64_t)sum * sum);
}

uint32_t vibration_row_u8(const struct log_mel *front, const struct vibration *p, void *memory, uint8_t *row)
{
    const int16_t *frame = log_mel_frame(front, memory);
    if (frame == NULL) {
        return 0;
    }
    int32_t level = log_mel_octaves(square_of(frame, front->frame) + p->floor) - p->base;
    int32_t value = (level * front->gain + (1 << (GAIN_SHIFT - 1))) >> GAIN_SHIFT;
    row[0] = value > 255 ? 255 : (uint8_t)value;
    return log_mel_row_u8(front, memory, row + 1);
}
