/* SPDX-License-Identifier: Apache-2.0 */
/* From the rows of a camera picture to those of the network's input, on the fly: the largest part in the middle that has
 * the input's shape, each of its pixels the mean of those it covers.
 *
 * Area mean and not the nearest pixel: a camera's noise and fine patterns would otherwise go through undamped, and the
 * images that networks are trained on were reduced by averaging. All arithmetic is on integers:
 *
 *     output row y covers the crop's rows [y * crop_height / height, (y + 1) * crop_height / height), columns alike
 *     a 5-bit colour c is (c << 3 | c >> 2), a 6-bit one (c << 2 | c >> 4); grey is (77 R + 150 G + 29 B + 128) >> 8
 *     mean = (sum + n / 2) / n
 *
 * test/camera_twin.py is its NumPy twin.
 */
#ifndef SCALER_H
#define SCALER_H

#include <stdint.h>

#include "camera.h"
#include "microtrain_board.h"

enum {
    CROP_FULL_WIDTH = CAMERA_WIDTH * MODEL_HEIGHT <= CAMERA_HEIGHT * MODEL_WIDTH, /* else full height */
    CROP_WIDTH = CROP_FULL_WIDTH ? CAMERA_WIDTH : CAMERA_HEIGHT * MODEL_WIDTH / MODEL_HEIGHT,
    CROP_HEIGHT = CROP_FULL_WIDTH ? CAMERA_WIDTH * MODEL_HEIGHT / MODEL_WIDTH : CAMERA_HEIGHT,
    CROP_LEFT = (CAMERA_WIDTH - CROP_WIDTH) / 2,
    CROP_TOP = (CAMERA_HEIGHT - CROP_HEIGHT) / 2,
};
_Static_assert(MODEL_WIDTH <= CROP_WIDTH && MODEL_HEIGHT <= CROP_HEIGHT,
               "the camera's picture, 320x240, is smaller than the network's input: convert with a smaller --input");
_Static_assert(MODEL_CHANNELS == 1 || MODEL_CHANNELS == 3, "the camera demo takes networks with 1 or 3 channels");

struct scaler {
    uint32_t sums[IMAGE_ROW_BYTES]; /* of the output row that is being collected */
    uint8_t row[IMAGE_ROW_BYTES];   /* the last one that was finished */
    uint16_t y;                     /* output row that is being collected */
};

void scaler_begin(struct scaler *s);

/* Row y of the picture, RGB565, in order from 0 on. Returns 1 where it finished a row of the network's input, which then
 * lies in s->row until the next call, else 0. */
int scaler_take(struct scaler *s, uint32_t y, const uint8_t *pixels);

#endif
