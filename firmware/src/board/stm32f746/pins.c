/* SPDX-License-Identifier: Apache-2.0 */
/* LED LD1 on PI1 and user button B1 on PI11, both active high (UM1907, sections 6.12 and 6.13). RM0385 chapter 6. */
#include "drivers.h"
#include "hardware.h"

enum { LED = 1, BUTTON = 11 };

void pins_init(void)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOIEN;
    (void)RCC->AHB1ENR; /* the clock is there after one read */
    GPIOI->MODER = (GPIOI->MODER & ~(3u << 2 * LED | 3u << 2 * BUTTON)) | GPIO_MODE_OUTPUT << 2 * LED;
}

void pins_led(int on)
{
    GPIOI->BSRR = BIT(on ? LED : LED + 16);
}

int pins_button(void)
{
    return (int)(GPIOI->IDR >> BUTTON & 1u);
}
