/* SPDX-License-Identifier: Apache-2.0 */
#include "scaler.h"

#include <string.h>

enum { RED, GREEN, BLUE, COLOURS };

void scaler_begin(struct scaler *s)
{
    memset(s->sums, 0, sizeof s->sums);
    s->y = 0;
}

/* First row or column of the crop that output row or column i covers. */
static uint32_t border(uint32_t i, uint32_t crop, uint32_t size)
{
    return i * crop / size;
}

static void unpack(const uint8_t *pixel, uint32_t colour[COLOURS])
{
    uint32_t rgb = (uint32_t)pixel[0] << 8 | pixel[1];
    uint32_t red = rgb >> 11, green = rgb >> 5 & 63u, blue = rgb & 31u;
    colour[RED] = red << 3 | red >> 2;
    colour[GREEN] = green << 2 | green >> 4;
    colour[BLUE] = blue << 3 | blue >> 2;
}

static void add_pixel(uint32_t *sum, const uint8_t *pixel)
{
    uint32_t colour[COLOURS];
    unpack(pixel, colour);
#if MODEL_CHANNELS == 1
    sum[0] += (77u * colour[RED] + 150u * colour[GREEN] + 29u * colour[BLUE] + 128u) >> 8;
#else
    sum[RED] += colour[RED];
    sum[GREEN] += colour[GREEN];
    sum[BLUE] += colour[BLUE];
#endif
}

static void add_row(struct scaler *s, const uint8_t *pixels)
{
    const uint8_t *pixel = pixels + 2 * CROP_LEFT;
    uint32_t column = 0;
    for (uint32_t x = 0; x < MODEL_WIDTH; x++) {
        for (uint32_t end = border(x + 1, CROP_WIDTH, MODEL_WIDTH); column < end; column++, pixel += 2) {
            add_pixel(&s->sums[x * MODEL_CHANNELS], pixel);
        }
    }
}

/* The sums of `rows` rows of the crop to means, and the sums to 0. */
static void finish_row(struct scaler *s, uint32_t rows)
{
    for (uint32_t x = 0; x < MODEL_WIDTH; x++) {
        uint32_t columns = border(x + 1, CROP_WIDTH, MODEL_WIDTH) - border(x, CROP_WIDTH, MODEL_WIDTH);
        uint32_t n = rows * columns;
        for (uint32_t i = x * MODEL_CHANNELS; i < (x + 1) * MODEL_CHANNELS; i++) {
            s->row[i] = (uint8_t)((s->sums[i] + n / 2) / n);
            s->sums[i] = 0;
        }
    }
    s->y++;
}

int scaler_take(struct scaler *s, uint32_t y, const uint8_t *pixels)
{
    uint32_t row = y - CROP_TOP; /* wraps above the crop */
    if (row >= CROP_HEIGHT) {
        return 0;
    }
    add_row(s, pixels);
    uint32_t end = border(s->y + 1u, CROP_HEIGHT, MODEL_HEIGHT);
    if (row + 1 < end) {
        return 0;
    }
    finish_row(s, end - border(s->y, CROP_HEIGHT, MODEL_HEIGHT));
    return 1;
}
