/* SPDX-License-Identifier: Apache-2.0 */
/* The two flash sectors that hold checkpoints. RM0385 and RM0390, chapter 3: one bank, so that the core stands still while it is
 * erased or programmed. */
#include "board.h"
#include "drivers.h"
#include "hardware.h"

enum { ERASE_TRIES = 200000000 }; /* looks at BSY: more than 4 s at 216 MHz, were the core to run on meanwhile */

extern const uint8_t __checkpoint_a_start[], __checkpoint_a_end[], __checkpoint_b_start[], __checkpoint_b_end[];

struct slot {
    const uint8_t *start, *end;
    uint32_t sector;
};

static const struct slot slots[BOARD_SLOTS] = {
    {__checkpoint_a_start, __checkpoint_a_end, SLOT_A_SECTOR},
    {__checkpoint_b_start, __checkpoint_b_end, SLOT_B_SECTOR},
};

const uint8_t *flash_slot(uint32_t slot)
{
    return slots[slot].start;
}

uint32_t flash_slot_bytes(uint32_t slot)
{
    return (uint32_t)(slots[slot].end - slots[slot].start);
}

static int wait_ready(void)
{
    data_barrier();
    for (uint32_t tries = 0; FLASH->SR & FLASH_SR_BSY; tries++) {
        if (tries == ERASE_TRIES) {
            return BOARD_ERR_TIMEOUT;
        }
    }
    return FLASH->SR & FLASH_SR_ERRORS ? BOARD_ERR_FLASH : BOARD_OK;
}

static int unlock(uint32_t control)
{
    FLASH->KEYR = FLASH_KEY_1;
    FLASH->KEYR = FLASH_KEY_2;
    int status = wait_ready();
    FLASH->SR = FLASH_SR_ERRORS; /* of before: cleared by writing ones */
    FLASH->CR = control;
    return status == BOARD_ERR_TIMEOUT ? status : BOARD_OK;
}

static int lock(int status, const uint8_t *changed, uint32_t size)
{
    FLASH->CR = FLASH_CR_LOCK;
    cache_forget(changed, size);
    return status;
}

int flash_erase(uint32_t slot)
{
    const struct slot *s = &slots[slot];
    uint32_t control = FLASH_CR_PSIZE_32 | FLASH_CR_SER | FLASH_CR_SNB(s->sector), start = time_cycles();
    int status = unlock(control);
    if (status == BOARD_OK) {
        FLASH->CR = control | FLASH_CR_STRT;
        status = wait_ready();
    }
    status = lock(status, s->start, flash_slot_bytes(slot));
    time_passed(time_cycles() - start);
    return status;
}

int flash_write(uint32_t slot, uint32_t offset, const uint8_t *words, uint32_t size)
{
    if (offset % 4 || size % 4 || offset > flash_slot_bytes(slot) || size > flash_slot_bytes(slot) - offset) {
        return BOARD_ERR_RANGE;
    }
    const uint8_t *start = slots[slot].start + offset;
    int status = unlock(FLASH_CR_PSIZE_32 | FLASH_CR_PG);
    for (uint32_t i = 0; status == BOARD_OK && i < size; i += 4) {
        uint32_t word;
        __builtin_memcpy(&word, words + i, sizeof word);
        *(volatile uint32_t *)((uintptr_t)start + i) = word;
        status = wait_ready();
    }
    return lock(status, start, size);
}
