/* SPDX-License-Identifier: Apache-2.0 */
/* From reset to main: FPU, memory, vector table. */
#include "drivers.h"
#include "hardware.h"

extern uint32_t __stack_top[], __data_start[], __data_end[], __bss_start[], __bss_end[];
extern const uint32_t __data_load[];

int main(void);
_Noreturn void Reset_Handler(void);
void NMI_Handler(void);
void HardFault_Handler(void);
void MemManage_Handler(void);
void BusFault_Handler(void);
void UsageFault_Handler(void);
void SysTick_Handler(void);
void Serial_IRQHandler(void);
void Unexpected_Handler(void);

union vector {
    uint32_t *stack;
    void (*handler)(void);
};

__attribute__((section(".isr_vector"), used)) static const union vector vectors[16 + EXTERNAL_INTERRUPTS] = {
    {.stack = __stack_top},
    {.handler = Reset_Handler},
    {.handler = NMI_Handler},
    {.handler = HardFault_Handler},
    {.handler = MemManage_Handler},
    {.handler = BusFault_Handler},
    {.handler = UsageFault_Handler},
    [7 ... 14] = {.handler = Unexpected_Handler},
    [15] = {.handler = SysTick_Handler},
    [16 ... 16 + SERIAL_IRQ - 1] = {.handler = Unexpected_Handler},
    [16 + SERIAL_IRQ] = {.handler = Serial_IRQHandler},
    [16 + SERIAL_IRQ + 1 ... 16 + EXTERNAL_INTERRUPTS - 1] = {.handler = Unexpected_Handler},
};

_Noreturn void Reset_Handler(void)
{
    SCB_CPACR |= SCB_CPACR_FPU; /* before any instruction of the FPU */
    data_barrier();
    instruction_barrier();
    SCB->VTOR = (uint32_t)vectors;
    const uint32_t *from = __data_load;
    for (uint32_t *to = __data_start; to < __data_end;) {
        *to++ = *from++;
    }
    for (uint32_t *to = __bss_start; to < __bss_end;) {
        *to++ = 0;
    }
    (void)main();
    system_reset();
}

_Noreturn void system_reset(void)
{
    data_barrier();
    SCB->AIRCR = SCB_AIRCR_SYSRESETREQ;
    data_barrier();
    for (;;) {
    }
}
