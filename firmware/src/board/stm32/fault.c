/* SPDX-License-Identifier: Apache-2.0 */
/* A crash says why: registers and the reason in words on the serial line, lines that begin with `fault `, then a reset.
 * ARMv7-M ARM, sections B1.5.6 (stack frame) and B3.2.15 (fault status). */
#include <string.h>

#include "board.h"
#include "crc.h"
#include "drivers.h"
#include "hardware.h"
#include "text.h"

enum { PAUSE_TRIES = 3000000 }; /* 0.1 s at 216 MHz: the line empties, a reset loop stays readable */

extern const uint32_t __stack_limit[], __ram_end[];

/* What the core pushes when an exception begins. */
struct exception_frame {
    uint32_t r0, r1, r2, r3, r12, lr, pc, xpsr;
};

struct reason {
    uint32_t mask;
    const char *text;
};

static const struct reason reasons[] = {
    {BIT(0), "instruction fetch from memory that holds no code"},
    {BIT(1), "data access that the memory map forbids"},
    {BIT(3), "memory fault while leaving an exception"},
    {BIT(4), "stack overflow: no room to enter an exception"},
    {BIT(5), "memory fault while saving FPU registers"},
    {BIT(8), "instruction fetch from an address where nothing is"},
    {BIT(9), "precise data access to an address where nothing is"},
    {BIT(10), "imprecise write to an address where nothing is (the pc is later)"},
    {BIT(11), "bus fault while leaving an exception"},
    {BIT(12), "stack overflow: no memory to enter an exception"},
    {BIT(13), "bus fault while saving FPU registers"},
    {BIT(16), "undefined instruction"},
    {BIT(17), "jump to an even address (not Thumb code)"},
    {BIT(18), "invalid return from an exception"},
    {BIT(19), "FPU instruction while the FPU is off"},
    {BIT(24), "unaligned access"},
    {BIT(25), "division by zero"},
};

/* Bytes that mean nothing after power-on: the check says whether they are a record. */
struct kept {
    struct board_crash crash;
    uint32_t check;
};

__attribute__((section(".noinit"))) static struct kept kept;

static uint32_t check_of(const struct board_crash *crash)
{
    return ~crc32(0, (const uint8_t *)crash, sizeof *crash);
}

const struct board_crash *board_crash(void)
{
    return kept.check == check_of(&kept.crash) ? &kept.crash : NULL;
}

static int readable(const struct exception_frame *frame)
{
    uint32_t address = (uint32_t)frame;
    return address >= (uint32_t)__stack_limit && address <= (uint32_t)__ram_end - sizeof *frame;
}

static void keep(uint32_t number, const struct exception_frame *frame)
{
    uint32_t count = board_crash() ? kept.crash.count : 0;
    int known = readable(frame);
    kept.crash = (struct board_crash){
        .count = count + 1,
        .exception = number,
        .cfsr = SCB->CFSR,
        .hfsr = SCB->HFSR,
        .sp = (uint32_t)frame,
        .pc = known ? frame->pc : 0,
        .lr = known ? frame->lr : 0,
    };
    kept.check = check_of(&kept.crash);
    data_barrier();
}

void fault_init(void)
{
    SCB->SHCSR |= SCB_SHCSR_FAULTS;
    SCB->CCR |= SCB_CCR_DIV_0_TRP;
}

/* A line that nobody takes is lost: there is nobody to tell. */
static void say(const char *text)
{
    (void)board_serial_write((const uint8_t *)text, strlen(text));
}

static void say_number(uint32_t value)
{
    char digits[TEXT_U32_MAX + 1];
    digits[text_u32(digits, value)] = '\0';
    say(digits);
}

static void say_register(const char *name, uint32_t value)
{
    char digits[] = "00000000";
    (void)text_hex(digits, value, 8);
    say(name);
    say(digits);
}

static void end_line(void)
{
    say("\r\n");
}

static const char *exception_name(uint32_t number)
{
    static const char *const names[] = {"NMI", "HardFault", "MemManage", "BusFault", "UsageFault"};
    return number >= 2 && number <= 6 ? names[number - 2] : "unexpected interrupt";
}

static void say_reason(uint32_t number, uint32_t status, const struct exception_frame *frame)
{
    say("fault ");
    say(exception_name(number));
    say(" ");
    say_number(number);
    if ((uint32_t)frame < (uint32_t)__stack_limit) {
        say(": stack overflow");
    }
    for (uint32_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (status & reasons[i].mask) {
            say(": ");
            say(reasons[i].text);
        }
    }
    if (status & SCB_CFSR_MMARVALID) {
        say_register(" at 0x", SCB->MMFAR);
    } else if (status & SCB_CFSR_BFARVALID) {
        say_register(" at 0x", SCB->BFAR);
    }
    end_line();
}

static void say_registers(const struct exception_frame *frame)
{
    say_register("fault sp ", (uint32_t)frame);
    say_register(" cfsr ", SCB->CFSR);
    say_register(" hfsr ", SCB->HFSR);
    end_line();
    if (!readable(frame)) {
        say("fault registers were not saved: no memory at sp\r\n");
        return;
    }
    say_register("fault pc ", frame->pc);
    say_register(" lr ", frame->lr);
    say_register(" xpsr ", frame->xpsr);
    end_line();
    say_register("fault r0 ", frame->r0);
    say_register(" r1 ", frame->r1);
    say_register(" r2 ", frame->r2);
    say_register(" r3 ", frame->r3);
    say_register(" r12 ", frame->r12);
    end_line();
}

/* Called by the handlers below with a stack that has room. */
_Noreturn __attribute__((used)) static void fault_report(const struct exception_frame *frame)
{
    uint32_t number;
    __asm volatile("mrs %0, ipsr" : "=r"(number));
    keep(number, frame);
    if (!(SERIAL->CR1 & SERIAL_CR1_UE)) {
        (void)usart_init(BOARD_BAUD_DEFAULT); /* a crash before board_init was through */
    }
    end_line(); /* ends a line that was being written */
    say_reason(number, SCB->CFSR, frame);
    say_registers(frame);
    (void)usart_flush();
    for (volatile uint32_t i = 0; i < PAUSE_TRIES; i++) {
    }
    system_reset();
}

/* Keep the frame's address; where fewer than 256 bytes of stack are left, go on at the top of the stack. */
#define HANDLER(name)                                                                                                  \
    void name(void);                                                                                                   \
    __attribute__((naked)) void name(void)                                                                             \
    {                                                                                                                  \
        __asm volatile("mov r0, sp\n\t"                                                                                \
                       "ldr r1, =__stack_limit + 256\n\t"                                                              \
                       "cmp r0, r1\n\t"                                                                                \
                       "bhs 1f\n\t"                                                                                    \
                       "ldr r1, =__stack_top\n\t"                                                                      \
                       "mov sp, r1\n"                                                                                  \
                       "1: b fault_report\n\t"                                                                         \
                       ".ltorg");                                                                                      \
    }

HANDLER(NMI_Handler)
HANDLER(HardFault_Handler)
HANDLER(MemManage_Handler)
HANDLER(BusFault_Handler)
HANDLER(UsageFault_Handler)
HANDLER(Unexpected_Handler)
