/* SPDX-License-Identifier: Apache-2.0 */
/* A camera that keeps one picture in its own memory and hands it out row by row. Knows nothing of models. */
#ifndef CAMERA_H
#define CAMERA_H

#include <stdint.h>

enum {
    CAMERA_WIDTH = 320,
    CAMERA_HEIGHT = 240,
    CAMERA_ROW_BYTES = 2 * CAMERA_WIDTH, /* RGB565, high byte first: RRRRRGGG GGGBBBBB */
};

enum {
    CAMERA_OK = 0,
    CAMERA_NO_ID = 1,        /* open: the sensor answers but tells no id; taken for the right one */
    CAMERA_ERR_SPI = -1,     /* the camera's picture memory does not answer */
    CAMERA_ERR_BUS = -2,     /* nobody answers on the sensor's I2C address, or the bus is stuck */
    CAMERA_ERR_SENSOR = -3,  /* a sensor of another kind */
    CAMERA_ERR_TIMEOUT = -4, /* the picture does not become complete */
    CAMERA_ERR_SIZE = -5,    /* the picture has fewer bytes than it must */
};

/* Resets and sets up camera and sensor; takes about 0.8 s. CAMERA_OK, CAMERA_NO_ID or an error. May be called again. */
int camera_open(void);

/* The id that the sensor told at the last camera_open, 0: none. */
uint32_t camera_id(void);

/* Takes a picture into the camera's memory: CAMERA_OK or an error. camera_row then hands it out. */
int camera_capture(void);

/* The next row of the picture, from the top. pixels: uint8 [CAMERA_ROW_BYTES]. CAMERA_OK or CAMERA_ERR_SPI. */
int camera_row(uint8_t *pixels);

/* No more rows are wanted: camera_capture and each error end the picture, too. */
void camera_release(void);

/* An error in words. */
const char *camera_reason(int status);

#endif
