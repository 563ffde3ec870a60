/* SPDX-License-Identifier: Apache-2.0 */
/* What the NUCLEO-F446RE and its STM32F446RE have of their own, named as in RM0390: what the files in ../stm32 ask every
 * board for. */
#ifndef HARDWARE_H
#define HARDWARE_H

#include "registers.h"

#define BOARD_NAME "nucleo_f446re"

/* Clock, RM0390, chapter on the RCC: 180 MHz. Both sources give a 2 MHz PLL input and a 360 MHz VCO; Q is not used. */
#define PLL_COMMON (RCC_PLLCFGR_PLLN(180u) | RCC_PLLCFGR_PLLP_2 | RCC_PLLCFGR_PLLQ(8u) | RCC_PLLCFGR_PLLR_2)
#define PLL_FROM_HSE (PLL_COMMON | RCC_PLLCFGR_PLLSRC_HSE | RCC_PLLCFGR_PLLM(4u))
#define PLL_FROM_HSI (PLL_COMMON | RCC_PLLCFGR_PLLM(8u))
#define HSE_BYPASS RCC_CR_HSEBYP /* no crystal: the ST-LINK's 8 MHz (UM1724, section on the oscillator) */
#define FLASH_WAIT_STATES 5u     /* chapter on the flash, 2.7 V or more */
#define FLASH_ACR_SPEED (FLASH_ACR_PRFTEN | FLASH_ACR_ICEN | FLASH_ACR_DCEN)
#define FLASH_ACR_ICEN BIT(9)
#define FLASH_ACR_DCEN BIT(10)
#define FLASH_ACR_ICRST BIT(11)
#define FLASH_ACR_DCRST BIT(12)
enum { PLL_HZ = 180000000, PLL_SERIAL_HZ = PLL_HZ / 4 }; /* USART2 is on APB1 */

/* Flash sectors of the checkpoint slots, RM0390, chapter on the flash */
enum { SLOT_A_SECTOR = 6, SLOT_B_SECTOR = 7 };

/* Vector table, RM0390 chapter 10: USART2 */
enum { SERIAL_IRQ = 38, EXTERNAL_INTERRUPTS = 97 };

/* The serial line: USART2 on PA2 (TX) and PA3 (RX), the ST-LINK's virtual COM port (UM1724). RM0390, chapter on the
 * USART: the older kind, with one data register for both ways. */
struct usart_registers {
    volatile uint32_t SR, DR, BRR, CR1, CR2, CR3, GTPR;
};
#define SERIAL ((struct usart_registers *)0x40004400u)
#define SERIAL_CR1_UE BIT(13)
#define RCC_APB1ENR_USART2EN BIT(17)
#define SERIAL_TX_PORT GPIOA
#define SERIAL_RX_PORT GPIOA
#define SERIAL_GPIO_CLOCKS RCC_AHB1ENR_GPIOAEN
enum { SERIAL_TX = 2, SERIAL_RX = 3, SERIAL_AF = 7 };

static inline void serial_clock_on(void)
{
    RCC->APB1ENR |= RCC_APB1ENR_USART2EN;
    (void)RCC->APB1ENR; /* the clock is there after one read */
}

static inline uint32_t serial_status(void)
{
    return SERIAL->SR;
}

static inline uint8_t serial_take(void)
{
    return (uint8_t)SERIAL->DR;
}

static inline void serial_put(uint8_t byte)
{
    SERIAL->DR = byte;
}

/* errors: of `status`, which was read just before; they have been seen. Reading DR behind SR clears the flags: where a
 * byte is there, taking it does that. */
static inline void serial_clear(uint32_t errors, uint32_t status)
{
    (void)errors;
    if (!(status & USART_RXNE)) {
        (void)SERIAL->DR;
    }
}

/* RCC and GPIO, RM0390: beyond what registers.h has */
#define RCC_CR_HSEBYP BIT(18)
#define RCC_AHB1ENR_GPIOCEN BIT(2)
#define GPIOC ((struct gpio_registers *)0x40020800u)

#endif
