/* SPDX-License-Identifier: Apache-2.0 */
/* Registers of the STM32F746 that only the camera and the display need, named as in RM0385. */
#ifndef CAMERA_REGISTERS_H
#define CAMERA_REGISTERS_H

#include "hardware.h"

/* RCC and GPIO, RM0385 chapters 5 and 6: beyond what the board's own files need */
#define RCC_CR_PLLSAION BIT(28)
#define RCC_CR_PLLSAIRDY BIT(29)
#define RCC_AHB1ENR_GPIOGEN BIT(6)
#define RCC_AHB3ENR_FMCEN BIT(0)
#define RCC_APB1ENR_SPI2EN BIT(14)
#define RCC_APB1ENR_I2C1EN BIT(21)
#define RCC_APB2ENR_LTDCEN BIT(26)
#define RCC_PLLSAICFGR_PLLSAIN(n) ((n) << 6)
#define RCC_PLLSAICFGR_PLLSAIQ(q) ((q) << 24)
#define RCC_PLLSAICFGR_PLLSAIR(r) ((r) << 28)
#define RCC_DCKCFGR1_PLLSAIDIVR_MASK (3u << 16)
#define RCC_DCKCFGR1_PLLSAIDIVR_4 (1u << 16)
#define GPIOG ((struct gpio_registers *)0x40021800u)

/* I2C, RM0385 chapter 30 */
struct i2c_registers {
    volatile uint32_t CR1, CR2, OAR1, OAR2, TIMINGR, TIMEOUTR, ISR, ICR, PECR, RXDR, TXDR;
};
#define I2C1 ((struct i2c_registers *)0x40005400u)
#define I2C_CR1_PE BIT(0)
#define I2C_CR2_RD_WRN BIT(10)
#define I2C_CR2_START BIT(13)
#define I2C_CR2_NBYTES(n) ((n) << 16)
#define I2C_CR2_AUTOEND BIT(25)
#define I2C_TIMINGR_PRESC(n) ((n) << 28)
#define I2C_TIMINGR_SCLDEL(n) ((n) << 20)
#define I2C_TIMINGR_SDADEL(n) ((n) << 16)
#define I2C_TIMINGR_SCLH(n) ((n) << 8)
#define I2C_TIMINGR_SCLL(n) (n)
#define I2C_ISR_TXIS BIT(1)
#define I2C_ISR_RXNE BIT(2)
#define I2C_ISR_NACKF BIT(4)
#define I2C_ISR_STOPF BIT(5)
#define I2C_ISR_TC BIT(6)
#define I2C_ISR_BUSY BIT(15)

/* SPI, RM0385 chapter 32 */
struct spi_registers {
    volatile uint32_t CR1, CR2, SR, DR;
};
#define SPI2 ((struct spi_registers *)0x40003800u)
#define SPI_CR1_MSTR BIT(2)
#define SPI_CR1_BR_DIV8 (2u << 3)
#define SPI_CR1_SPE BIT(6)
#define SPI_CR1_SSI BIT(8)
#define SPI_CR1_SSM BIT(9)
#define SPI_CR2_DS_8BIT (7u << 8)
#define SPI_CR2_FRXTH BIT(12) /* RXNE with every byte */
#define SPI_SR_RXNE BIT(0)
#define SPI_SR_TXE BIT(1)
#define SPI_SR_BSY BIT(7)

/* Flexible memory controller, its SDRAM part, RM0385 chapter 13 */
struct sdram_registers {
    volatile uint32_t SDCR1, SDCR2, SDTR1, SDTR2, SDCMR, SDRTR, SDSR;
};
#define FMC_SDRAM ((struct sdram_registers *)0xa0000140u)
#define FMC_SDCR_NR_12 (1u << 2)
#define FMC_SDCR_MWID_16 (1u << 4)
#define FMC_SDCR_NB_4 BIT(6)
#define FMC_SDCR_CAS(n) ((n) << 7)
#define FMC_SDCR_SDCLK_HALF (2u << 10)
#define FMC_SDCR_RBURST BIT(12)
#define FMC_SDTR_TMRD(n) ((n)-1u)
#define FMC_SDTR_TXSR(n) (((n)-1u) << 4)
#define FMC_SDTR_TRAS(n) (((n)-1u) << 8)
#define FMC_SDTR_TRC(n) (((n)-1u) << 12)
#define FMC_SDTR_TWR(n) (((n)-1u) << 16)
#define FMC_SDTR_TRP(n) (((n)-1u) << 20)
#define FMC_SDTR_TRCD(n) (((n)-1u) << 24)
#define FMC_SDCMR_CLOCK_ON 1u
#define FMC_SDCMR_PRECHARGE_ALL 2u
#define FMC_SDCMR_REFRESH 3u
#define FMC_SDCMR_LOAD_MODE 4u
#define FMC_SDCMR_CTB1 BIT(4)
#define FMC_SDCMR_NRFS(n) (((n)-1u) << 5)
#define FMC_SDCMR_MRD(mode) ((mode) << 9)
#define FMC_SDRTR_COUNT(n) ((n) << 1)
#define FMC_SDSR_BUSY BIT(5)

/* LCD controller, RM0385 chapter 18; the first layer's registers begin at 0x84 */
struct ltdc_registers {
    volatile uint32_t reserved0[2];
    volatile uint32_t SSCR, BPCR, AWCR, TWCR, GCR, reserved1[2], SRCR, reserved2, BCCR;
};
struct ltdc_layer_registers {
    volatile uint32_t CR, WHPCR, WVPCR, CKCR, PFCR, CACR, DCCR, BFCR, reserved0[2];
    volatile uint32_t CFBAR, CFBLR, CFBLNR;
};
#define LTDC ((struct ltdc_registers *)0x40016800u)
#define LTDC_LAYER1 ((struct ltdc_layer_registers *)0x40016884u)
#define LTDC_GCR_LTDCEN BIT(0)
#define LTDC_SRCR_IMR BIT(0)
#define LTDC_LCR_LEN BIT(0)
#define LTDC_LPFCR_RGB565 2u
#define LTDC_LBFCR_CONSTANT_ALPHA (4u << 8 | 5u)

#endif
