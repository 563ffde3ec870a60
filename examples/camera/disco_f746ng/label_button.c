/* SPDX-License-Identifier: Apache-2.0 */
/* label_button.h on PG6, D2 of the Arduino header (UM1907, Arduino connectors): a button from there to ground, with the
 * chip's own pull-up. RM0385 chapter 6. */
#include "label_button.h"

#include "camera_registers.h"

enum { BUTTON = 6 };

void label_button_init(void)
{
    RCC->AHB1ENR |= RCC_AHB1ENR_GPIOGEN;
    (void)RCC->AHB1ENR; /* the clock is there after one read */
    GPIOG->MODER &= ~(3u << 2 * BUTTON);
    GPIOG->PUPDR = (GPIOG->PUPDR & ~(3u << 2 * BUTTON)) | GPIO_PULL_UP << 2 * BUTTON;
}

int label_button(void)
{
    return !(GPIOG->IDR >> BUTTON & 1u);
}
