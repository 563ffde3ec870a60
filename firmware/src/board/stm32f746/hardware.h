/* SPDX-License-Identifier: Apache-2.0 */
/* What the 32F746GDISCOVERY and its STM32F746 have of their own, named as in RM0385. First what the files in ../stm32
 * ask every board for. */
#ifndef HARDWARE_H
#define HARDWARE_H

#include "registers.h"

#define BOARD_NAME "disco_f746ng"

/* Clock, RM0385 section 5.2: 216 MHz. Both sources give a 1 MHz PLL input, a 432 MHz VCO and 48 MHz at Q. */
#define PLL_COMMON (RCC_PLLCFGR_PLLN(432u) | RCC_PLLCFGR_PLLP_2 | RCC_PLLCFGR_PLLQ(9u) | RCC_PLLCFGR_PLLR_2)
#define PLL_FROM_HSE (PLL_COMMON | RCC_PLLCFGR_PLLSRC_HSE | RCC_PLLCFGR_PLLM(25u)) /* a crystal of 25 MHz */
#define PLL_FROM_HSI (PLL_COMMON | RCC_PLLCFGR_PLLM(16u))
#define HSE_BYPASS 0u
#define FLASH_WAIT_STATES 7u /* section 3.3.2 */
#define FLASH_ACR_SPEED (FLASH_ACR_PRFTEN | FLASH_ACR_ARTEN)
#define FLASH_ACR_ARTEN BIT(9)
enum { PLL_HZ = 216000000, PLL_SERIAL_HZ = PLL_HZ / 2 }; /* USART1 is on APB2 */

/* Flash sectors of the checkpoint slots, RM0385 section 3.3.2 */
enum { SLOT_A_SECTOR = 4, SLOT_B_SECTOR = 7 };

/* Vector table, RM0385 chapter 10: USART1 */
enum { SERIAL_IRQ = 37, EXTERNAL_INTERRUPTS = 98 };

/* The serial line: USART1 on PA9 (TX) and PB7 (RX), the ST-LINK's virtual COM port (UM1907, section 6.3). RM0385
 * chapter 31. */
struct usart_registers {
    volatile uint32_t CR1, CR2, CR3, BRR, GTPR, RTOR, RQR, ISR, ICR, RDR, TDR;
};
#define SERIAL ((struct usart_registers *)0x40011000u)
#define SERIAL_CR1_UE BIT(0)
#define RCC_APB2ENR_USART1EN BIT(4)
#define SERIAL_TX_PORT GPIOA
#define SERIAL_RX_PORT GPIOB
#define SERIAL_GPIO_CLOCKS (RCC_AHB1ENR_GPIOAEN | RCC_AHB1ENR_GPIOBEN)
enum { SERIAL_TX = 9, SERIAL_RX = 7, SERIAL_AF = 7 };

static inline void serial_clock_on(void)
{
    RCC->APB2ENR |= RCC_APB2ENR_USART1EN;
    (void)RCC->APB2ENR; /* the clock is there after one read */
}

static inline uint32_t serial_status(void)
{
    return SERIAL->ISR;
}

static inline uint8_t serial_take(void)
{
    return (uint8_t)SERIAL->RDR;
}

static inline void serial_put(uint8_t byte)
{
    SERIAL->TDR = byte;
}

/* errors: of `status`, which was read just before; they have been seen. The same bits of ICR clear the flags. */
static inline void serial_clear(uint32_t errors, uint32_t status)
{
    (void)status;
    SERIAL->ICR = errors;
}

/* GPIO of LED and button, RM0385 chapters 5 and 6 */
#define RCC_AHB1ENR_GPIOIEN BIT(8)
#define GPIOI ((struct gpio_registers *)0x40022000u)

/* The flash beside the chip, in the window of QUADSPI's memory-mapped mode: RM0385 chapter 14 and section 2.2.2 */
#define EXTERNAL_START 0x90000000u
struct quadspi_registers {
    volatile uint32_t CR, DCR, SR, FCR, DLR, CCR, AR, ABR, DR;
};
#define QUADSPI ((struct quadspi_registers *)0xa0001000u)
#define QUADSPI_CR_EN BIT(0)
#define QUADSPI_CR_SSHIFT BIT(4) /* sample half a cycle later */
#define QUADSPI_CR_PRESCALER(n) ((n) << 24)
#define QUADSPI_DCR_CSHT(n) ((n) << 8)
#define QUADSPI_DCR_FSIZE(n) ((n) << 16)
#define QUADSPI_SR_TCF BIT(1) /* the same bit of FCR clears it */
#define QUADSPI_SR_BUSY BIT(5)
#define QUADSPI_CCR_IMODE_1_LINE (1u << 8)
#define QUADSPI_CCR_IMODE_4_LINES (3u << 8)
#define QUADSPI_CCR_ADMODE_4_LINES (3u << 10)
#define QUADSPI_CCR_ADSIZE_24 (2u << 12)
#define QUADSPI_CCR_DCYC(n) ((n) << 18)
#define QUADSPI_CCR_DMODE_1_LINE (1u << 24)
#define QUADSPI_CCR_DMODE_4_LINES (3u << 24)
#define QUADSPI_CCR_FMODE_READ (1u << 26)
#define QUADSPI_CCR_FMODE_MAPPED (3u << 26)
#define RCC_AHB1ENR_GPIODEN BIT(3)
#define RCC_AHB1ENR_GPIOEEN BIT(4)
#define RCC_AHB3ENR_QSPIEN BIT(1)
#define GPIOD GPIO_PORT(3)
#define GPIOE GPIO_PORT(4)

/* Memory protection unit, ARMv7-M ARM section B3.5 */
struct mpu_registers {
    volatile uint32_t TYPE, CTRL, RNR, RBAR, RASR;
};
#define MPU ((struct mpu_registers *)0xe000ed90u)
#define MPU_CTRL_ENABLE BIT(0)
#define MPU_CTRL_PRIVDEFENA BIT(2) /* elsewhere the default map holds */
#define MPU_RASR_ENABLE BIT(0)
#define MPU_RASR_WRITE_THROUGH BIT(17)
#define MPU_RASR_READ_ONLY (6u << 24)
#define MPU_RASR_XN BIT(28)

/* Caches of the Cortex-M7, ARMv7-M ARM sections B3.2.22 (identification) and B2.2.7 (maintenance) */
#define SCB_CCR_DC BIT(16)
#define SCB_CCR_IC BIT(17)
#define CCSIDR (*(volatile uint32_t *)0xe000ed80u)
#define CSSELR (*(volatile uint32_t *)0xe000ed84u)
#define ICIALLU (*(volatile uint32_t *)0xe000ef50u)
#define DCIMVAC (*(volatile uint32_t *)0xe000ef5cu)
#define DCISW (*(volatile uint32_t *)0xe000ef60u)

#endif
