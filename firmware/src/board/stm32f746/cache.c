/* SPDX-License-Identifier: Apache-2.0 */
/* ARMv7-M ARM, section B2.2.7. The DTCM (first 64 KB of SRAM) is not cached; nothing but the core writes memory here,
 * so that the data cache is wrong about flash alone, after it was erased or programmed. */
#include "drivers.h"
#include "hardware.h"

/* Invalidate the data cache line by line: its content is unknown after reset. */
static void invalidate_data(void)
{
    CSSELR = 0; /* level 1, data */
    data_barrier();
    uint32_t size = CCSIDR;
    uint32_t sets = size >> 13 & 0x7fffu, ways = size >> 3 & 0x3ffu;
    for (uint32_t set = 0; set <= sets; set++) {
        for (uint32_t way = 0; way <= ways; way++) {
            DCISW = way << 30 | set << 5; /* four ways, lines of 32 bytes */
        }
    }
    data_barrier();
}

enum { LINE_BYTES = 32 };

void cache_forget(const uint8_t *start, uint32_t size)
{
    uint32_t end = (uint32_t)start + size;
    data_barrier();
    for (uint32_t line = (uint32_t)start / LINE_BYTES * LINE_BYTES; line < end; line += LINE_BYTES) {
        DCIMVAC = line;
    }
    data_barrier();
}

void cache_enable(void)
{
    data_barrier();
    instruction_barrier();
    ICIALLU = 0;
    data_barrier();
    instruction_barrier();
    if (!(SCB->CCR & SCB_CCR_DC)) {
        invalidate_data();
    }
    SCB->CCR |= SCB_CCR_IC | SCB_CCR_DC;
    data_barrier();
    instruction_barrier();
}
