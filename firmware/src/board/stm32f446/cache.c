/* SPDX-License-Identifier: Apache-2.0 */
/* The Cortex-M4 has no caches; the flash has small ones of its own, for code and for constants, which the clock's set-up
 * switches on with the wait states. RM0390, chapter on the flash, adaptive real-time memory accelerator. */
#include "drivers.h"
#include "hardware.h"

void cache_enable(void) {}

/* They forget all or nothing, and only while they are off. */
void cache_forget(const uint8_t *start, uint32_t size)
{
    (void)start;
    (void)size;
    uint32_t off = FLASH->ACR & ~(FLASH_ACR_ICEN | FLASH_ACR_DCEN);
    data_barrier();
    FLASH->ACR = off;
    FLASH->ACR = off | FLASH_ACR_ICRST | FLASH_ACR_DCRST;
    FLASH->ACR = off;
    FLASH->ACR = off | FLASH_ACR_ICEN | FLASH_ACR_DCEN;
    data_barrier();
}
