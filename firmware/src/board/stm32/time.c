/* SPDX-License-Identifier: Apache-2.0 */
/* SysTick every millisecond, and the cycle counter of the DWT. */
#include "drivers.h"
#include "registers.h"

enum { TICKS_A_SECOND = 1000 };

void SysTick_Handler(void);

static volatile uint32_t millis;

/* A Cortex-M4 may lose the result of a VDIV that a handler of one or two instructions interrupts (Arm erratum 776924):
 * this one, the shortest, has five. */
void SysTick_Handler(void)
{
    millis++;
}

void time_init(void)
{
    SYSTICK->RVR = clock_core_hz() / TICKS_A_SECOND - 1;
    SYSTICK->CVR = 0;
    SYSTICK->CSR = SYSTICK_CSR_CLKSOURCE_CORE | SYSTICK_CSR_TICKINT | SYSTICK_CSR_ENABLE;
    DEMCR |= DEMCR_TRCENA;
    DWT_LAR = DWT_LAR_KEY; /* the Cortex-M7's DWT is locked after reset; others have no lock */
    DWT->CYCCNT = 0;
    DWT->CTRL |= DWT_CTRL_CYCCNTENA;
}

void time_passed(uint32_t cycles)
{
    __asm volatile("cpsid i" ::: "memory"); /* a tick between reading and writing would be lost */
    millis += cycles / (clock_core_hz() / TICKS_A_SECOND);
    __asm volatile("cpsie i" ::: "memory");
}

uint32_t time_millis(void)
{
    return millis;
}

uint32_t time_cycles(void)
{
    return DWT->CYCCNT;
}
