/* SPDX-License-Identifier: Apache-2.0 */
/* Registers that the STM32F7 and the STM32F4 both have, named as in RM0385, the reference manual of the STM32F746
 * (chapter in the comment), those of the core as in the Armv7-M Architecture Reference Manual (ARMv7-M ARM). What one
 * chip has of its own is in its folder's hardware.h. */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <stdint.h>

#define BIT(n) (1u << (n))

/* FLASH interface, RM0385 chapter 3; SR's last error is ERSERR there and PGSERR on the STM32F4 */
struct flash_registers {
    volatile uint32_t ACR, KEYR, OPTKEYR, SR, CR;
};
#define FLASH ((struct flash_registers *)0x40023c00u)
#define FLASH_ACR_LATENCY_MASK 15u
#define FLASH_ACR_PRFTEN BIT(8)
#define FLASH_KEY_1 0x45670123u
#define FLASH_KEY_2 0xcdef89abu
#define FLASH_SR_ERRORS (BIT(1) | BIT(4) | BIT(5) | BIT(6) | BIT(7)) /* OPERR WRPERR PGAERR PGPERR ... */
#define FLASH_SR_BSY BIT(16)
#define FLASH_CR_PG BIT(0)
#define FLASH_CR_SER BIT(1)
#define FLASH_CR_SNB(sector) ((sector) << 3)
#define FLASH_CR_PSIZE_32 (2u << 8) /* needs 2.7 V or more */
#define FLASH_CR_STRT BIT(16)
#define FLASH_CR_LOCK BIT(31)

/* PWR, RM0385 chapter 4; CR and CSR on the STM32F4 */
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
#define RCC_APB1ENR_PWREN BIT(28)
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
#define GPIO_PORT(n) ((struct gpio_registers *)(0x40020000u + 0x400u * (n))) /* A is 0 */
#define GPIO_MODE_OUTPUT 1u
#define GPIO_MODE_ALTERNATE 2u
#define GPIO_PULL_UP 1u
#define GPIO_SPEED_25_MHZ 1u
#define GPIO_SPEED_FASTEST 3u

/* USART: the flags of ISR (RM0385 chapter 31), which are those of the STM32F4's SR, and what both have in CR1 */
#define USART_FE BIT(1)
#define USART_NF BIT(2)
#define USART_ORE BIT(3)
#define USART_RXNE BIT(5)
#define USART_TC BIT(6)
#define USART_TXE BIT(7)
#define USART_CR1_RE BIT(2)
#define USART_CR1_TE BIT(3)
#define USART_CR1_RXNEIE BIT(5)

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
#define SCB_SHCSR_FAULTS (BIT(16) | BIT(17) | BIT(18)) /* MemManage, BusFault, UsageFault have their own handlers */
#define SCB_CFSR_MMARVALID BIT(7)
#define SCB_CFSR_BFARVALID BIT(15)
#define SCB_CPACR (*(volatile uint32_t *)0xe000ed88u)
#define SCB_CPACR_FPU (0xfu << 20) /* CP10 and CP11, full access */
#define FPDSCR (*(volatile uint32_t *)0xe000ef3cu)

/* Inline with -Os, too: test_nucleo.py looks for them in the functions that need them. */
__attribute__((always_inline)) static inline void data_barrier(void)
{
    __asm volatile("dsb" ::: "memory");
}

__attribute__((always_inline)) static inline void instruction_barrier(void)
{
    __asm volatile("isb" ::: "memory");
}

#endif
