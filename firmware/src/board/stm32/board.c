/* SPDX-License-Identifier: Apache-2.0 */
/* board.h on an STM32F4 or STM32F7. */
#include "board.h"
#include "drivers.h"
#include "hardware.h"

#if MICROTRAIN_EXTERNAL && !defined(EXTERNAL_START)
#error "This model's weights lie in flash beside the chip, which this board has not: convert again, with --board."
#endif

/* FPSCR: rounding mode, flush to zero, default NaN (ARMv7-M ARM, section A2.5.3). The numeric contract needs the nearest,
 * none, and the default NaN. */
enum { FPSCR_MODES = 3 << 22 | 1 << 24 | 1 << 25, DEFAULT_NAN = 1 << 25 };

static int fpu_init(void)
{
    FPDSCR = DEFAULT_NAN; /* what an exception handler starts with */
    uint32_t modes = DEFAULT_NAN;
    __asm volatile("vmsr fpscr, %1\n\tvmrs %0, fpscr" : "=r"(modes) : "r"(modes));
    return (modes & FPSCR_MODES) == DEFAULT_NAN ? BOARD_OK : BOARD_ERR_RANGE;
}

int board_init(void)
{
    fault_init();
    int fpu = fpu_init();
    cache_enable();
    int clock = clock_init();
    time_init();
    watchdog_init();
    pins_init();
    int line = usart_init(BOARD_BAUD_DEFAULT);
    int status = fpu != BOARD_OK ? fpu : clock != BOARD_OK ? clock : line;
#if MICROTRAIN_EXTERNAL
    status = status != BOARD_OK ? status : external_flash_init();
#endif
    return status;
}

const char *board_name(void)
{
    return BOARD_NAME;
}

size_t board_serial_read(uint8_t *data, size_t size)
{
    return usart_read(data, size);
}

int board_serial_write(const uint8_t *data, size_t size)
{
    watchdog_feed();
    return usart_write(data, size);
}

int board_serial_baud(uint32_t baud)
{
    return usart_baud(baud);
}

uint32_t board_serial_lost(void)
{
    return usart_lost();
}

/* With interrupts masked a byte that comes between the look and the WFI still ends the sleep. */
void board_wait(void)
{
    watchdog_feed();
    __asm volatile("cpsid i" ::: "memory");
    if (usart_empty()) {
        data_barrier();
        __asm volatile("wfi");
    }
    __asm volatile("cpsie i" ::: "memory");
    instruction_barrier();
}

const uint8_t *board_slot(uint32_t slot)
{
    return flash_slot(slot);
}

uint32_t board_slot_bytes(uint32_t slot)
{
    return flash_slot_bytes(slot);
}

int board_slot_erase(uint32_t slot)
{
    (void)usart_flush(); /* what was said last is to be seen before the core stands still */
    watchdog_feed();
    return flash_erase(slot);
}

int board_slot_write(uint32_t slot, uint32_t offset, const void *words, uint32_t size)
{
    return flash_write(slot, offset, words, size);
}

void board_alive(void)
{
    watchdog_feed();
}

const char *board_start_cause(void)
{
    return watchdog_start_cause();
}

uint32_t board_millis(void)
{
    return time_millis();
}

uint32_t board_cycles(void)
{
    return time_cycles();
}

void board_led(int on)
{
    pins_led(on);
}

int board_button(void)
{
    return pins_button();
}

_Noreturn void board_reset(void)
{
    (void)usart_flush(); /* a host that is gone must not keep the board from restarting */
    system_reset();
}
