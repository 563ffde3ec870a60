/* SPDX-License-Identifier: Apache-2.0 */
/* display.h on the board's LCD, a RK043FN48H of 480x272, on the LTDC: UM1907, section on the LCD; RM0385 chapter 18;
 * Rocktech, RK043FN48H-CT672B specification, for the timings. The picture is in the SDRAM. */
#include <stddef.h>

#include "board.h"
#include "display.h"
#include "camera_drivers.h"
#include "camera_registers.h"

enum { AF9 = 9, AF14 = 14, PORT_E = 4, PORT_G = 6, PORT_I = 8, PORT_J = 9, PORT_K = 10 };
enum { DISP = 12, BACKLIGHT = 3 }; /* PI12, PK3 */

/* In pixel clocks and lines: sync, back porch, front porch. */
enum { HSYNC = 41, HBP = 13, HFP = 32, VSYNC = 10, VBP = 2, VFP = 2 };

enum { CLOCK_TRIES = 2000000 }; /* looks at the flag that the clock is stable */

/* 1 MHz * 192 / 5 / 4 = 9.6 MHz, the pixel clock. */
enum { PLLSAI_N = 192, PLLSAI_Q = 2, PLLSAI_R = 5 };

static void connect(void)
{
    pins_alternate(PORT_E, 0x0010, AF14); /* B0 */
    pins_alternate(PORT_G, 0x1000, AF9);  /* B4 */
    pins_alternate(PORT_I, 0xc600, AF14); /* VSYNC HSYNC CLK R0 */
    pins_alternate(PORT_J, 0xefff, AF14); /* R1-R7 G0-G4 B1-B3 */
    pins_alternate(PORT_K, 0x00f7, AF14); /* G5-G7 B5-B7 DE */
}

static void output_high(uint32_t port, uint32_t pin)
{
    struct gpio_registers *gpio = GPIO_PORT(port);
    gpio->BSRR = BIT(pin);
    gpio->MODER = (gpio->MODER & ~(3u << 2 * pin)) | GPIO_MODE_OUTPUT << 2 * pin;
}

static int start_pixel_clock(void)
{
    RCC->PLLSAICFGR = RCC_PLLSAICFGR_PLLSAIN((uint32_t)PLLSAI_N) | RCC_PLLSAICFGR_PLLSAIQ((uint32_t)PLLSAI_Q) |
                      RCC_PLLSAICFGR_PLLSAIR((uint32_t)PLLSAI_R);
    RCC->DCKCFGR1 = (RCC->DCKCFGR1 & ~RCC_DCKCFGR1_PLLSAIDIVR_MASK) | RCC_DCKCFGR1_PLLSAIDIVR_4;
    RCC->CR |= RCC_CR_PLLSAION;
    for (uint32_t tries = 0; tries < CLOCK_TRIES; tries++) {
        if (RCC->CR & RCC_CR_PLLSAIRDY) {
            return BOARD_OK;
        }
    }
    return BOARD_ERR_TIMEOUT;
}

/* Two numbers of a register: across, and down. */
static uint32_t both(uint32_t across, uint32_t down)
{
    return across << 16 | down;
}

static void set_timings(void)
{
    uint32_t left = HSYNC + HBP, top = VSYNC + VBP;
    LTDC->SSCR = both(HSYNC - 1, VSYNC - 1);
    LTDC->BPCR = both(left - 1, top - 1);
    LTDC->AWCR = both(left + DISPLAY_WIDTH - 1, top + DISPLAY_HEIGHT - 1);
    LTDC->TWCR = both(left + DISPLAY_WIDTH + HFP - 1, top + DISPLAY_HEIGHT + VFP - 1);
    LTDC->BCCR = 0;
}

static void set_layer(uint32_t address)
{
    enum { LINE_BYTES = 2 * DISPLAY_WIDTH, OPAQUE = 255 };
    uint32_t left = HSYNC + HBP, top = VSYNC + VBP;
    LTDC_LAYER1->WHPCR = both(left + DISPLAY_WIDTH - 1, left);
    LTDC_LAYER1->WVPCR = both(top + DISPLAY_HEIGHT - 1, top);
    LTDC_LAYER1->PFCR = LTDC_LPFCR_RGB565;
    LTDC_LAYER1->CACR = OPAQUE;
    LTDC_LAYER1->BFCR = LTDC_LBFCR_CONSTANT_ALPHA;
    LTDC_LAYER1->CFBAR = address;
    LTDC_LAYER1->CFBLR = both(LINE_BYTES, LINE_BYTES + 3);
    LTDC_LAYER1->CFBLNR = DISPLAY_HEIGHT;
    LTDC_LAYER1->CR = LTDC_LCR_LEN;
}

volatile uint16_t *display_open(void)
{
    volatile uint16_t *frame = sdram_open();
    if (!frame || start_pixel_clock() != BOARD_OK) {
        return NULL;
    }
    for (uint32_t i = 0; i < (uint32_t)DISPLAY_WIDTH * DISPLAY_HEIGHT; i++) {
        frame[i] = 0;
    }
    RCC->APB2ENR |= RCC_APB2ENR_LTDCEN;
    (void)RCC->APB2ENR; /* the clock is there after one read */
    connect();
    set_timings();
    set_layer((uint32_t)frame);
    LTDC->SRCR = LTDC_SRCR_IMR;
    LTDC->GCR |= LTDC_GCR_LTDCEN;
    output_high(PORT_I, DISP);
    output_high(PORT_K, BACKLIGHT);
    return frame;
}
