"""Bugs written by hand: the registers of the drivers, and what the operators cannot say.

Each is a text that stands exactly once in its file, and what it becomes. The operators of operators.py see no
macro, no enumeration and no table, and there the numbers of the reference manual are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .operators import Mutant

STM32 = "firmware/src/board/stm32"
F746, F446 = "firmware/src/board/stm32f746", "firmware/src/board/stm32f446"
REGISTERS = f"{STM32}/registers.h"

BY_HAND: dict[str, tuple[tuple[str, str], ...]] = {
    REGISTERS: (
        ("FLASH_ACR_PRFTEN BIT(8)", "FLASH_ACR_PRFTEN BIT(7)"),
        ("FLASH_KEY_1 0x45670123u", "FLASH_KEY_1 0x45670124u"),
        ("FLASH_KEY_2 0xcdef89abu", "FLASH_KEY_2 0xcdef89aau"),
        ("BIT(1) | BIT(4) | BIT(5) | BIT(6) | BIT(7)", "0u"),
        ("FLASH_SR_BSY BIT(16)", "FLASH_SR_BSY BIT(15)"),
        ("FLASH_CR_PG BIT(0)", "FLASH_CR_PG BIT(2)"),
        ("FLASH_CR_SER BIT(1)", "FLASH_CR_SER BIT(2)"),
        ("((sector) << 3)", "((sector) << 4)"),
        ("FLASH_CR_PSIZE_32 (2u << 8)", "FLASH_CR_PSIZE_32 (1u << 8)"),
        ("FLASH_CR_STRT BIT(16)", "FLASH_CR_STRT 0u"),
        ("FLASH_CR_LOCK BIT(31)", "FLASH_CR_LOCK 0u"),
        ("PWR_CR1_ODEN BIT(16)", "PWR_CR1_ODEN BIT(15)"),
        ("PWR_CR1_ODSWEN BIT(17)", "PWR_CR1_ODSWEN 0u"),
        ("PWR_CR1_VOS_SCALE_1 (3u << 14)", "PWR_CR1_VOS_SCALE_1 (0u << 14)"),
        ("RCC_CR_HSEON BIT(16)", "RCC_CR_HSEON BIT(18)"),
        ("RCC_CR_HSERDY BIT(17)", "RCC_CR_HSERDY BIT(3)"),
        ("RCC_CR_PLLON BIT(24)", "RCC_CR_PLLON BIT(26)"),
        ("RCC_CR_PLLRDY BIT(25)", "RCC_CR_PLLRDY BIT(27)"),
        ("RCC_PLLCFGR_PLLN(n) ((n) << 6)", "RCC_PLLCFGR_PLLN(n) ((n) << 5)"),
        ("RCC_PLLCFGR_PLLP_2 (0u << 16)", "RCC_PLLCFGR_PLLP_2 (1u << 16)"),
        ("RCC_PLLCFGR_PLLSRC_HSE BIT(22)", "RCC_PLLCFGR_PLLSRC_HSE 0u"),
        ("RCC_CFGR_SW_PLL 2u", "RCC_CFGR_SW_PLL 1u"),
        ("RCC_CFGR_SWS_PLL (2u << 2)", "RCC_CFGR_SWS_PLL (0u << 2)"),
        ("RCC_CFGR_PPRE1_DIV4 (5u << 10)", "RCC_CFGR_PPRE1_DIV4 (4u << 10)"),
        ("RCC_CFGR_PPRE2_DIV2 (4u << 13)", "RCC_CFGR_PPRE2_DIV2 (5u << 13)"),
        ("RCC_APB1ENR_PWREN BIT(28)", "RCC_APB1ENR_PWREN BIT(27)"),
        ("RCC_AHB1ENR_GPIOAEN BIT(0)", "RCC_AHB1ENR_GPIOAEN BIT(2)"),
        ("RCC_AHB1ENR_GPIOBEN BIT(1)", "RCC_AHB1ENR_GPIOBEN BIT(3)"),
        ("RCC_CSR_RMVF BIT(24)", "RCC_CSR_RMVF BIT(23)"),
        ("RCC_CSR_PORRSTF BIT(27)", "RCC_CSR_PORRSTF BIT(25)"),
        ("RCC_CSR_SFTRSTF BIT(28)", "RCC_CSR_SFTRSTF BIT(29)"),
        ("RCC_CSR_IWDGRSTF BIT(29)", "RCC_CSR_IWDGRSTF BIT(30)"),
        ("IWDG_KR_FEED 0xaaaau", "IWDG_KR_FEED 0xaaabu"),
        ("IWDG_KR_UNLOCK 0x5555u", "IWDG_KR_UNLOCK 0x5554u"),
        ("IWDG_KR_START 0xccccu", "IWDG_KR_START 0xcccdu"),
        ("GPIO_MODE_OUTPUT 1u", "GPIO_MODE_OUTPUT 3u"),
        ("GPIO_MODE_ALTERNATE 2u", "GPIO_MODE_ALTERNATE 1u"),
        ("GPIO_PULL_UP 1u", "GPIO_PULL_UP 2u"),
        ("USART_FE BIT(1)", "USART_FE BIT(0)"),
        ("USART_ORE BIT(3)", "USART_ORE BIT(4)"),
        ("USART_RXNE BIT(5)", "USART_RXNE BIT(4)"),
        ("USART_TC BIT(6)", "USART_TC BIT(4)"),
        ("USART_TXE BIT(7)", "USART_TXE BIT(4)"),
        ("USART_CR1_RE BIT(2)", "USART_CR1_RE BIT(1)"),
        ("USART_CR1_TE BIT(3)", "USART_CR1_TE BIT(1)"),
        ("USART_CR1_RXNEIE BIT(5)", "USART_CR1_RXNEIE BIT(4)"),
        ("DWT_LAR_KEY 0xc5acce55u", "DWT_LAR_KEY 0xc5acce54u"),
        ("DWT_CTRL_CYCCNTENA BIT(0)", "DWT_CTRL_CYCCNTENA BIT(1)"),
        ("DEMCR_TRCENA BIT(24)", "DEMCR_TRCENA BIT(23)"),
        ("SYSTICK_CSR_ENABLE BIT(0)", "SYSTICK_CSR_ENABLE 0u"),
        ("SYSTICK_CSR_TICKINT BIT(1)", "SYSTICK_CSR_TICKINT 0u"),
        ("SYSTICK_CSR_CLKSOURCE_CORE BIT(2)", "SYSTICK_CSR_CLKSOURCE_CORE 0u"),
        ("0xe000e100u", "0xe000e180u"),
        ("(0x05fa0000u | BIT(2))", "(0x05fb0000u | BIT(2))"),
        ("SCB_CCR_DIV_0_TRP BIT(4)", "SCB_CCR_DIV_0_TRP BIT(5)"),
        ("(BIT(16) | BIT(17) | BIT(18)) /* MemManage", "(BIT(16) | BIT(17)) /* MemManage"),
        ("SCB_CFSR_BFARVALID BIT(15)", "SCB_CFSR_BFARVALID BIT(14)"),
        ("SCB_CPACR_FPU (0xfu << 20)", "SCB_CPACR_FPU (0xfu << 16)"),
    ),
    f"{F746}/hardware.h": (
        ("RCC_PLLCFGR_PLLN(432u)", "RCC_PLLCFGR_PLLN(216u)"),
        ("RCC_PLLCFGR_PLLM(25u)", "RCC_PLLCFGR_PLLM(50u)"),
        ("FLASH_WAIT_STATES 7u", "FLASH_WAIT_STATES 6u"),
        ("FLASH_ACR_ARTEN BIT(9)", "FLASH_ACR_ARTEN BIT(10)"),
        ("PLL_SERIAL_HZ = PLL_HZ / 2", "PLL_SERIAL_HZ = PLL_HZ / 4"),
        ("PLL_HZ = 216000000", "PLL_HZ = 108000000"),
        ("SLOT_A_SECTOR = 4", "SLOT_A_SECTOR = 5"),
        ("SLOT_B_SECTOR = 7", "SLOT_B_SECTOR = 6"),
        ("SERIAL_IRQ = 37", "SERIAL_IRQ = 38"),
        ("SERIAL_CR1_UE BIT(0)", "SERIAL_CR1_UE BIT(13)"),
        ("RCC_APB2ENR_USART1EN BIT(4)", "RCC_APB2ENR_USART1EN BIT(5)"),
        ("SERIAL_TX = 9", "SERIAL_TX = 8"),
        ("SERIAL_RX = 7,", "SERIAL_RX = 6,"),
        ("SERIAL_AF = 7", "SERIAL_AF = 8"),
        ("SERIAL_RX_PORT GPIOB", "SERIAL_RX_PORT GPIOA"),
        ("SCB_CCR_DC BIT(16)", "SCB_CCR_DC BIT(18)"),
        ("SCB_CCR_IC BIT(17)", "SCB_CCR_IC BIT(19)"),
        ("0xe000ef5cu", "0xe000ef70u"),
        ("QUADSPI_CR_EN BIT(0)", "QUADSPI_CR_EN BIT(1)"),
        ("QUADSPI_CR_SSHIFT BIT(4)", "QUADSPI_CR_SSHIFT 0u"),
        ("QUADSPI_CR_PRESCALER(n) ((n) << 24)", "QUADSPI_CR_PRESCALER(n) ((n) << 23)"),
        ("QUADSPI_DCR_CSHT(n) ((n) << 8)", "QUADSPI_DCR_CSHT(n) ((n) << 7)"),
        ("QUADSPI_DCR_FSIZE(n) ((n) << 16)", "QUADSPI_DCR_FSIZE(n) ((n) << 15)"),
        ("QUADSPI_SR_TCF BIT(1)", "QUADSPI_SR_TCF BIT(2)"),
        ("QUADSPI_SR_BUSY BIT(5)", "QUADSPI_SR_BUSY BIT(4)"),
        ("QUADSPI_CCR_IMODE_1_LINE (1u << 8)", "QUADSPI_CCR_IMODE_1_LINE (2u << 8)"),
        ("QUADSPI_CCR_IMODE_4_LINES (3u << 8)", "QUADSPI_CCR_IMODE_4_LINES (2u << 8)"),
        ("QUADSPI_CCR_ADMODE_4_LINES (3u << 10)", "QUADSPI_CCR_ADMODE_4_LINES (1u << 10)"),
        ("QUADSPI_CCR_ADSIZE_24 (2u << 12)", "QUADSPI_CCR_ADSIZE_24 (3u << 12)"),
        ("QUADSPI_CCR_DCYC(n) ((n) << 18)", "QUADSPI_CCR_DCYC(n) ((n) << 17)"),
        ("QUADSPI_CCR_DMODE_1_LINE (1u << 24)", "QUADSPI_CCR_DMODE_1_LINE (0u << 24)"),
        ("QUADSPI_CCR_DMODE_4_LINES (3u << 24)", "QUADSPI_CCR_DMODE_4_LINES (2u << 24)"),
        ("QUADSPI_CCR_FMODE_READ (1u << 26)", "QUADSPI_CCR_FMODE_READ (0u << 26)"),
        ("QUADSPI_CCR_FMODE_MAPPED (3u << 26)", "QUADSPI_CCR_FMODE_MAPPED (1u << 26)"),
        ("MPU_CTRL_ENABLE BIT(0)", "MPU_CTRL_ENABLE 0u"),
        ("MPU_CTRL_PRIVDEFENA BIT(2)", "MPU_CTRL_PRIVDEFENA 0u"),
        ("MPU_RASR_ENABLE BIT(0)", "MPU_RASR_ENABLE 0u"),
        ("MPU_RASR_WRITE_THROUGH BIT(17)", "MPU_RASR_WRITE_THROUGH BIT(16)"),
        ("MPU_RASR_READ_ONLY (6u << 24)", "MPU_RASR_READ_ONLY (3u << 24)"),
        ("MPU_RASR_XN BIT(28)", "MPU_RASR_XN 0u"),
    ),
    f"{F446}/hardware.h": (
        ("RCC_PLLCFGR_PLLN(180u)", "RCC_PLLCFGR_PLLN(90u)"),
        ("RCC_PLLCFGR_PLLM(4u)", "RCC_PLLCFGR_PLLM(8u)"),
        ("HSE_BYPASS RCC_CR_HSEBYP", "HSE_BYPASS 0u"),
        ("FLASH_WAIT_STATES 5u", "FLASH_WAIT_STATES 4u"),
        ("FLASH_ACR_DCEN BIT(10)", "FLASH_ACR_DCEN BIT(13)"),
        ("PLL_SERIAL_HZ = PLL_HZ / 4", "PLL_SERIAL_HZ = PLL_HZ / 8"),
        ("SLOT_A_SECTOR = 6", "SLOT_A_SECTOR = 5"),
        ("SERIAL_IRQ = 38", "SERIAL_IRQ = 39"),
        ("SERIAL_CR1_UE BIT(13)", "SERIAL_CR1_UE BIT(0)"),
        ("RCC_APB1ENR_USART2EN BIT(17)", "RCC_APB1ENR_USART2EN BIT(18)"),
        ("SERIAL_TX = 2", "SERIAL_TX = 4"),
        ("SERIAL_AF = 7", "SERIAL_AF = 6"),
    ),
    f"{F746}/pins.c": (("LED = 1", "LED = 2"), ("BUTTON = 11", "BUTTON = 10")),
    f"{F446}/pins.c": (("LED = 5", "LED = 6"), ("BUTTON = 13", "BUTTON = 12")),
    f"{STM32}/watchdog.c": (("PRESCALER_256 = 6", "PRESCALER_256 = 2"), ("RELOAD = 1250", "RELOAD = 4095")),
    f"{STM32}/usart.c": (
        ("OVERSAMPLING = 16", "OVERSAMPLING = 8"),
        ("BAUD_MIN = 9600", "BAUD_MIN = 96000"),
        ("BAUD_MAX = 3000000", "BAUD_MAX = 30000000"),
        ("RING_MASK = BOARD_RX_RING - 1", "RING_MASK = BOARD_RX_RING / 2 - 1"),
        ("(clock_serial_hz() + baud / 2) / baud", "(clock_serial_hz() + baud / 2) / baud / 2"),
    ),
    f"{STM32}/time.c": (("TICKS_A_SECOND = 1000", "TICKS_A_SECOND = 500"),),
    f"{STM32}/flash.c": (("FLASH->CR = control | FLASH_CR_STRT", "FLASH->CR = control"),),
    "firmware/src/base/crc.c": (("0x1021", "0x8005"), ("0xedb88320", "0xedb88321")),
    "firmware/include/receiver.h": (("FRAME_TIMEOUT_MS = 500", "FRAME_TIMEOUT_MS = 50"),),
}

# Bugs that once passed every Robot suite: all suites run on these, whatever notices them first.
NAMED = {
    "the frames' CRC-16 has another polynomial": "firmware/src/base/crc.c: 0x1021 -> 0x8005",
    "an erase of the flash never starts": (
        f"{STM32}/flash.c: FLASH->CR = control | FLASH_CR_STRT -> FLASH->CR = control"
    ),
    "the divider of the serial line is halved": (
        f"{STM32}/usart.c: (clock_serial_hz() + baud / 2) / baud -> (clock_serial_hz() + baud / 2) / baud / 2"
    ),
    "the flash is never locked": f"{REGISTERS}: FLASH_CR_LOCK BIT(31) -> FLASH_CR_LOCK 0u",
}


def by_hand(root: Path) -> Iterator[Mutant]:
    """The list as mutants of the files that are there.

    Errors   ValueError where a text does not stand exactly once in its file: the list is behind the firmware
    """
    for file, changes in BY_HAND.items():
        source = (root / file).read_bytes()
        for before, after in changes:
            if source.count(before.encode()) != 1:
                raise ValueError(f"{file} does not hold {before!r} once: mend lab/mutation/bugs.py")
            start = source.index(before.encode())
            name = f"{file}: {before} -> {after}"
            yield Mutant(name, file, start, start + len(before.encode()), after)
