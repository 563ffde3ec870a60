/* SPDX-License-Identifier: Apache-2.0 */
/* The OV2640 image sensor: OmniVision, "OV2640 data sheet" 1.6, tables 12 (bank 0, image processing) and 13 (bank 1,
 * sensor). After its reset it takes 1600x1200 at up to 15 frames a second with its own exposure, gain and white balance;
 * what is set here is the way from there to CAMERA_WIDTH x CAMERA_HEIGHT in RGB565. Only registers that the data sheet
 * explains are written: the reserved ones, which tune colours and noise, keep their reset values. */
#include "board.h"
#include "camera.h"
#include "camera_drivers.h"

enum { ADDRESS = 0x30, FULL_WIDTH = 1600, FULL_HEIGHT = 1200, RESET_MS = 10 };

enum { BANK = 0xff, BANK_DSP = 0, BANK_SENSOR = 1 };

enum sensor_register { PIDH = 0x0a, PIDL = 0x0b, COM7 = 0x12 };
enum { COM7_RESET = 0x80, COM7_UXGA = 0x00 };
enum { ID_HIGH = 0x26, ID_LOW = 0x40, ID_LOW_MASK = 0xf0 }; /* the low digit counts the chip's versions */

enum dsp_register {
    R_BYPASS = 0x05,
    CTRLI = 0x50,
    HSIZE = 0x51,
    VSIZE = 0x52,
    XOFFL = 0x53,
    YOFFL = 0x54,
    VHYX = 0x55,
    ZMOW = 0x5a,
    ZMOH = 0x5b,
    ZMHH = 0x5c,
    CTRL2 = 0x86,
    SIZEL = 0x8c,
    HSIZE8 = 0xc0,
    VSIZE8 = 0xc1,
    CTRL0 = 0xc2,
    R_DVP_SP = 0xd3,
    IMAGE_MODE = 0xda,
    RESET = 0xe0,
};
enum {
    CTRLI_LP_DP = 0x80,
    CTRLI_QUARTER = 2 << 3 | 2,          /* of the height and of the width */
    CTRL2_SCALE_AND_COLOUR = 0x3d,       /* DCW, SDE, UV_ADJ, UV_AVG, CMX */
    CTRL0_RGB = 0x0e,                    /* YUV422, YUV_EN, RGB_EN */
    DVP_DIVIDER = 4,                     /* pixel clock slow enough for the ArduChip */
    IMAGE_MODE_RGB565_HIGH_FIRST = 0x08, /* bit 0 would swap the bytes */
    RESET_DVP = 0x04,
};
_Static_assert(FULL_WIDTH / 4 >= CAMERA_WIDTH && FULL_HEIGHT / 4 >= CAMERA_HEIGHT, "the zoom only makes smaller");

struct setting {
    uint8_t reg, value;
};

/* 1600x1200 > a quarter of each, 400x300 > zoom to 320x240 */
static const struct setting picture[] = {
    {RESET, RESET_DVP},
    {R_BYPASS, 0},
    {HSIZE8, FULL_WIDTH / 8},
    {VSIZE8, FULL_HEIGHT / 8},
    {SIZEL, 0}, /* lowest three bits of both */
    {CTRL2, CTRL2_SCALE_AND_COLOUR},
    {CTRLI, CTRLI_LP_DP | CTRLI_QUARTER},
    {HSIZE, FULL_WIDTH / 4 & 0xff},
    {VSIZE, FULL_HEIGHT / 4 & 0xff},
    {XOFFL, 0},
    {YOFFL, 0},
    {VHYX, (FULL_HEIGHT / 4 >> 8) << 7 | (FULL_WIDTH / 4 >> 8) << 3},
    {ZMOW, CAMERA_WIDTH / 4},
    {ZMOH, CAMERA_HEIGHT / 4},
    {ZMHH, 0}, /* upper bits of both */
    {R_DVP_SP, DVP_DIVIDER},
    {CTRL0, CTRL0_RGB},
    {IMAGE_MODE, IMAGE_MODE_RGB565_HIGH_FIRST},
    {RESET, 0},
};

static int set(uint8_t reg, uint8_t value)
{
    return i2c_write(ADDRESS, reg, value) == BOARD_OK ? CAMERA_OK : CAMERA_ERR_BUS;
}

/* A reset of all registers needs some milliseconds. */
static int reset(void)
{
    if (set(BANK, BANK_SENSOR) != CAMERA_OK || set(COM7, COM7_RESET) != CAMERA_OK) {
        return CAMERA_ERR_BUS;
    }
    for (uint32_t start = board_millis(); board_millis() - start <= RESET_MS;) {
        board_wait();
    }
    return CAMERA_OK;
}

/* CAMERA_NO_ID where the sensor tells none, as in Renode's model of it. */
static int check_id(uint32_t *id)
{
    uint8_t high, low;
    if (set(BANK, BANK_SENSOR) != CAMERA_OK || i2c_read(ADDRESS, PIDH, &high) != BOARD_OK ||
        i2c_read(ADDRESS, PIDL, &low) != BOARD_OK) {
        return CAMERA_ERR_BUS;
    }
    *id = (uint32_t)high << 8 | low;
    if (*id == 0) {
        return CAMERA_NO_ID;
    }
    return high == ID_HIGH && (low & ID_LOW_MASK) == ID_LOW ? CAMERA_OK : CAMERA_ERR_SENSOR;
}

int ov2640_open(uint32_t *id)
{
    int found = check_id(id);
    if (found < CAMERA_OK) {
        return found;
    }
    if (reset() != CAMERA_OK || set(BANK, BANK_SENSOR) != CAMERA_OK || set(COM7, COM7_UXGA) != CAMERA_OK ||
        set(BANK, BANK_DSP) != CAMERA_OK) {
        return CAMERA_ERR_BUS;
    }
    for (uint32_t i = 0; i < sizeof picture / sizeof picture[0]; i++) {
        if (set(picture[i].reg, picture[i].value) != CAMERA_OK) {
            return CAMERA_ERR_BUS;
        }
    }
    return found;
}
