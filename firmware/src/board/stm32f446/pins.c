/* SPDX-License-Identifier: Apache-2.0 */
/* LED LD2 on PA5, active high, and user button B1 on PC13, which pulls it low (UM1724, sections on LEDs and push
 * buttons; the pull-up is on the board). RM0390, chapter on the GPIO. */
#include "drivers.h"
#include "hardware.h"

enum { LED = 5, BUTTON = 13 };

void pins_init(void)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOAEN | RCC_AHB1ENR_GPIOCEN;
    (void)RCC->AHB1ENR; /* the clocks are there after one read */
    GPIOA->MODER = (GPIOA->MODER & ~(3u << 2 * LED)) | GPIO_MODE_OUTPUT << 2 * LED;
    GPIOC->MODER &= ~(3u << 2 * BUTTON);
}

void pins_led(int on)
{
    GPIOA->BSRR = BIT(on ? LED : LED + 16);
}

int pins_button(void)
{
    return !(GPIOC->IDR >> BUTTON & 1u);
}
