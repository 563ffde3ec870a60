/* Registers of the STM32F746 that the board layer uses, named as in the reference manual RM0385 (chapter in the
 * comment), those of the Cortex-M7 as in the Armv7-M Architecture Reference Manual (ARMv7-M ARM). */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <stdint.h>

#define BIT(n) (1u << (n))

/* FLASH interface, RM0385 chapter 3 */
struct flash_registers {
    volatile uint32_t ACR, KEYR, OPTKEYR, SR, CR;
};
#define FLASH ((struct flash_registers *)0x40023c00u)
#define FLASH_ACR_LATENCY_7WS 7u
#define FLASH_ACR_PRFTEN BIT(8)
#define FLASH_ACR_ARTEN BIT(9)
#define FLASH_KEY_1 0x45670123u
#define FLASH_KEY_2 0xcdef89abu
#define FLASH_SR_ERRORS (BIT(1) | BIT(4) | BIT(5) | BIT(6) | BIT(7)) /* OPERR WRPERR PGAERR PGPERR ERSERR */
#define FLASH_SR_BSY BIT(16)
#define FLASH_CR_PG BIT(0)
#define FLASH_CR_SER BIT(1)
#define FLASH_CR_SNB(sector) ((sector) << 3)
#define FLASH_CR_PSIZE_32 (2u << 8) /* needs 2.7 V or more */
#define FLASH_CR_STRT BIT(16)
#define FLASH_CR_LOCK BIT(31)

/* PWR, RM0385 chapter 4 */
struct pwr_registers {
    volatile uint32_t CR1, CSR1;
};
#define PWR ((struct pwr_registers *)0x40007000u)
#define PWR_CR1_VOS_SCALE_1 (3u << 14)
#define PWR_CR1_ODEN BIT(16)
#define PWR_CR1_ODSWEN BIT(17)
#define PWR_CSR1_ODRDY BIT(16)
#define PWR_CSR1_ODSWRDY BIT(17)

/* RCC, RM0385 chapter 5 */
struct rcc_registers {
    volatile uint32_t CR, PLLCFGR, CFGR, CIR;
    volatile uint32_t AHB1RSTR, AHB2RSTR, AHB3RSTR, reserved0;
    volatile uint32_t APB1RSTR, APB2RSTR, reserved1[2];
    volatile uint32_t AHB1ENR, AHB2ENR, AHB3ENR, reserved2;
    volatile uint32_t APB1ENR, APB2ENR, reserved3[10];
    volatile uint32_t BDCR, CSR, reserved4[2];
    volatile uint32_t SSCGR, PLLI2SCFGR, PLLSAICFGR, DCKCFGR1;
};
#define RCC ((struct rcc_registers *)0x40023800u)
#define RCC_CR_HSION BIT(0)
#define RCC_CR_HSIRDY BIT(1)
#define RCC_CR_HSEON BIT(16)
#define RCC_CR_HSERDY BIT(17)
#define RCC_CR_PLLON BIT(24)
#define RCC_CR_PLLRDY BIT(25)
#define RCC_CR_PLLSAION BIT(28)
#define RCC_CR_PLLSAIRDY BIT(29)
#define RCC_PLLCFGR_PLLM(m) (m)
#define RCC_PLLCFGR_PLLN(n) ((n) << 6)
#define RCC_PLLCFGR_PLLP_2 (0u << 16)
#define RCC_PLLCFGR_PLLSRC_HSE BIT(22)
#define RCC_PLLCFGR_PLLQ(q) ((q) << 24)
#define RCC_PLLCFGR_PLLR_2 (2u << 28) /* reset value, unused here */
#define RCC_CFGR_SW_MASK 3u
#define RCC_CFGR_SW_HSI 0u
#define RCC_CFGR_SW_PLL 2u
#define RCC_CFGR_SWS_MASK (3u << 2)
#define RCC_CFGR_SWS_HSI (0u << 2)
#define RCC_CFGR_SWS_PLL (2u << 2)
#define RCC_CFGR_PPRE1_DIV4 (5u << 10)
#define RCC_CFGR_PPRE2_DIV2 (4u << 13)
#define RCC_AHB1ENR_GPIOAEN BIT(0)
#define RCC_AHB1ENR_GPIOBEN BIT(1)
#define RCC_AHB1ENR_GPIOGEN BIT(6)
#define RCC_AHB1ENR_GPIOIEN BIT(8)
#define RCC_AHB3ENR_FMCEN BIT(0)
#define RCC_APB1ENR_SPI2EN BIT(14)
#define RCC_APB1ENR_I2C1EN BIT(21)
#define RCC_APB1ENR_PWREN BIT(28)
#define RCC_APB2ENR_USART1EN BIT(4)
#define RCC_APB2ENR_LTDCEN BIT(26)
#define RCC_PLLSAICFGR_PLLSAIN(n) ((n) << 6)
#define RCC_PLLSAICFGR_PLLSAIQ(q) ((q) << 24)
#define RCC_PLLSAICFGR_PLLSAIR(r) ((r) << 28)
#define RCC_DCKCFGR1_PLLSAIDIVR_MASK (3u << 16)
#define RCC_DCKCFGR1_PLLSAIDIVR_4 (1u << 16)
#define RCC_CSR_RMVF BIT(24)
#define RCC_CSR_PORRSTF BIT(27)
#define RCC_CSR_SFTRSTF BIT(28)
#define RCC_CSR_IWDGRSTF BIT(29)

/* Independent watchdog, RM0385, chapter on the IWDG */
struct watchdog_registers {
    volatile uint32_t KR, PR, RLR, SR;
};
#define IWDG ((struct watchdog_registers *)0x40003000u)
#define IWDG_KR_FEED 0xaaaau
#define IWDG_KR_UNLOCK 0x5555u
#define IWDG_KR_START 0xccccu

/* GPIO, RM0385 chapter 6 */
struct gpio_registers {
    volatile uint32_t MODER, OTYPER, OSPEEDR, PUPDR, IDR, ODR, BSRR, LCKR, AFRL, AFRH;
};
#define GPIOA ((struct gpio_registers *)0x40020000u)
#define GPIOB ((struct gpio_registers *)0x40020400u)
#define GPIOG ((struct gpio_registers *)0x40021800u)
#define GPIOI ((struct gpio_registers *)0x40022000u)
#define GPIO_PORT(n) ((struct gpio_registers *)(0x40020000u + 0x400u * (n))) /* A is 0 */
#define GPIO_MODE_OUTPUT 1u
#define GPIO_MODE_ALTERNATE 2u
#define GPIO_PULL_UP 1u
#define GPIO_SPEED_25_MHZ 1u
#define GPIO_SPEED_FASTEST 3u

/* Vector table, RM0385 chapter 10 */
enum { USART1_IRQ = 37, EXTERNAL_INTERRUPTS = 98 };

/* USART, RM0385 chapter 31 */
struct usart_registers {
    volatile uint32_t CR1, CR2, CR3, BRR, GTPR, RTOR, RQR, ISR, ICR, RDR, TDR;
};
#define USART1 ((struct usart_registers *)0x40011000u)
#define USART_CR1_UE BIT(0)
#define USART_CR1_RE BIT(2)
#define USART_CR1_TE BIT(3)
#define USART_CR1_RXNEIE BIT(5)
#define USART_ISR_FE BIT(1)
#define USART_ISR_NF BIT(2)
#define USART_ISR_ORE BIT(3)
#define USART_ISR_RXNE BIT(5)
#define USART_ISR_TC BIT(6)
#define USART_ISR_TXE BIT(7)

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

/* Data watchpoint and trace, ARMv7-M ARM section C1.8; lock access register: CoreSight */
struct dwt_registers {
    volatile uint32_t CTRL, CYCCNT;
};
#define DWT ((struct dwt_registers *)0xe0001000u)
#define DWT_LAR (*(volatile uint32_t *)0xe0001fb0u)
#define DWT_LAR_KEY 0xc5acce55u
#define DWT_CTRL_CYCCNTENA BIT(0)
#define DEMCR (*(volatile uint32_t *)0xe000edfcu)
#define DEMCR_TRCENA BIT(24)

/* SysTick, ARMv7-M ARM section B3.3 */
struct systick_registers {
    volatile uint32_t CSR, RVR, CVR;
};
#define SYSTICK ((struct systick_registers *)0xe000e010u)
#define SYSTICK_CSR_ENABLE BIT(0)
#define SYSTICK_CSR_TICKINT BIT(1)
#define SYSTICK_CSR_CLKSOURCE_CORE BIT(2)

/* NVIC, ARMv7-M ARM section B3.4 */
#define NVIC_ISER ((volatile uint32_t *)0xe000e100u)

/* System control block, ARMv7-M ARM section B3.2 */
struct scb_registers {
    volatile uint32_t CPUID, ICSR, VTOR, AIRCR, SCR, CCR, SHPR1, SHPR2, SHPR3, SHCSR, CFSR, HFSR, DFSR, MMFAR, BFAR;
};
#define SCB ((struct scb_registers *)0xe000ed00u)
#define SCB_AIRCR_SYSRESETREQ (0x05fa0000u | BIT(2)) /* with the key */
#define SCB_CCR_DIV_0_TRP BIT(4)
#define SCB_CCR_DC BIT(16)
#define SCB_CCR_IC BIT(17)
#define SCB_SHCSR_FAULTS (BIT(16) | BIT(17) | BIT(18)) /* MemManage, BusFault, UsageFault have their own handlers */
#define SCB_CFSR_MMARVALID BIT(7)
#define SCB_CFSR_BFARVALID BIT(15)
#define SCB_CPACR (*(volatile uint32_t *)0xe000ed88u)
#define SCB_CPACR_FPU (0xfu << 20) /* CP10 and CP11, full access */
#define FPDSCR (*(volatile uint32_t *)0xe000ef3cu)

/* Caches, ARMv7-M ARM sections B3.2.22 (identification) and B2.2.7 (maintenance) */
#define CCSIDR (*(volatile uint32_t *)0xe000ed80u)
#define CSSELR (*(volatile uint32_t *)0xe000ed84u)
#define ICIALLU (*(volatile uint32_t *)0xe000ef50u)
#define DCIMVAC (*(volatile uint32_t *)0xe000ef5cu)
#define DCISW (*(volatile uint32_t *)0xe000ef60u)

static inline void data_barrier(void)
{
    __asm volatile("dsb" ::: "memory");
}

static inline void instruction_barrier(void)
{
    __asm volatile("isb" ::: "memory");
}

#endif
