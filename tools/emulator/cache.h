/* The level-1 caches of the STM32F746's Cortex-M7 (ARM DDI 0489, 5.9; RM0385, 2.1): which accesses miss, and what a
 * miss is taken to cost. An ESTIMATE: the sizes are the chip's, the rules below are assumptions.
 *
 * - A set replaces its least recently used line. Both caches are on from power-on, and empty.
 * - A missing line of flash costs 8 cycles (7 wait states at 216 MHz) for the 256 bits that the flash reads at once,
 *   and 4 to bring them over the 64-bit AXI bus: flash at 0x08000000 is not behind the ART accelerator.
 * - A missing line of SRAM1 or SRAM2 costs 4 cycles for the bridge to AHB, and 8 words without wait states.
 * - SRAM is write-back and write-allocate (the core's default map); a line that was written costs 8 more to leave.
 * - A missing line of the flash beside the chip costs 64 clocks of QUADSPI for its 64 half bytes, and the bridge. Where it
 *   is not the one behind the last, a command comes before it: chip select high, 8 clocks of instruction, 6 of address,
 *   and dummy cycles (RM0385, 14.3; peripherals/quadspi.py takes the numbers from the registers). What QUADSPI has
 *   read ahead is not taken off.
 * - DTCM, the first 64 KB of SRAM, is neither cached nor ever waited for.
 * - The core stands still for all of a miss. The chip goes on with the critical word and has a store buffer: the
 *   estimate errs on the high side.
 */
#ifndef EMULATOR_CACHE_H
#define EMULATOR_CACHE_H

#include <stdint.h>
#include <string.h>

enum { LINE_BYTES = 32, SETS_MAX = 64, WAYS_MAX = 4 };
enum { LINE_VALID = 1, LINE_DIRTY = 2 }; /* beside the address of a line */
enum { HIT = 0, MISS = 1, MISS_WRITE_BACK = 2 };
enum { FLASH_LINE_CYCLES = 8 + 4, SRAM_LINE_CYCLES = 4 + 8, WRITE_BACK_CYCLES = 8 };
enum { SRAM_START = 0x20000000, DTCM_BYTES = 64 * 1024 };

/* lines: of each set, the one used last first */
struct cache {
    uint32_t sets, ways;
    uint32_t lines[SETS_MAX][WAYS_MAX];
};

/* Access one address. Returns HIT, MISS, or MISS_WRITE_BACK where a line that was written had to leave. */
static uint32_t cache_access(struct cache *c, uint32_t address, int write)
{
    uint32_t wanted = (address & ~(LINE_BYTES - 1u)) | LINE_VALID;
    uint32_t *line = c->lines[address / LINE_BYTES % c->sets];
    uint32_t i = 0;
    while (i + 1 < c->ways && (line[i] & ~(uint32_t)LINE_DIRTY) != wanted) {
        i++;
    }
    uint32_t old = line[i];
    int hit = (old & ~(uint32_t)LINE_DIRTY) == wanted;
    memmove(line + 1, line, i * sizeof *line);
    line[0] = (hit ? old : wanted) | (write ? LINE_DIRTY : 0u);
    if (hit) {
        return HIT;
    }
    return (old & LINE_DIRTY) != 0 ? MISS_WRITE_BACK : MISS;
}

/* Cycles that the core waits for a line of flash or SRAM. */
static uint32_t line_fill(uint32_t address)
{
    return address < SRAM_START ? FLASH_LINE_CYCLES : SRAM_LINE_CYCLES;
}

static int in_dtcm(uint32_t address)
{
    return address - SRAM_START < DTCM_BYTES;
}

#endif
