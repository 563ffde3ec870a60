/* What native.c and native.py share: struct native, which native.py mirrors field by field. */
#ifndef EMULATOR_NATIVE_H
#define EMULATOR_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#include "cache.h"

enum { FLASH = 0, SRAM = 1, REGIONS = 2 };
enum { SPI2_PAGE = 0x40003000, FLASH_PAGE = 0x40023000, SYSTEM_PAGE = 0xE000E000 };
enum { SPI2_SR = 0x808, SPI2_DR = 0x80C, SPI_SR_RXNE = 1 << 0, SPI_SR_TXE = 1 << 1 };
enum { RX_QUEUE = 4096, TX_QUEUE = 65536 };
enum { ISR_FE = 1 << 1, ISR_ORE = 1 << 3, ISR_RXNE = 1 << 5, ISR_TC = 1 << 6, ISR_TXE = 1 << 7 };
enum { ISR_TEACK_REACK = 3 << 21 }; /* not on the older kind of USART */
enum { CR1_RE = 1 << 2, CR1_TE = 1 << 3, CR1_RXNEIE = 1 << 5, CR1_TCIE = 1 << 6, CR1_TXEIE = 1 << 7 };
enum { RX_FRAMING_ERROR = 1 << 8 };
enum { STOP_ON_LINE = 1, STOP_ON_BYTE = 2 };
enum { STOPPED = 1, STOPPED_AT_LIMIT = 2, STOPPED_AT_FPU = 3, STOPPED_AT_FUNCTION = 4 };
enum { FLASH_SR = 0xC0C, CR_PG = 1 << 0, CR_PSIZE_SHIFT = 8, CR_LOCK = (int)(1u << 31) };
enum { BLOCK_BYTES_MAX = 2048, BLOCK_HAS_FPU = 1 << 15, BLOCK_COUNT = BLOCK_HAS_FPU - 1 };
enum { ENTER_NESTED = 1, ENTER_UNSTACKED = 2 };
enum { VIOLATION_ALIGNMENT = 1, VIOLATION_NO_FPU = 2 };
enum { CALLS_MAX = 64, MEM_WRITE = 17, MEM_FETCH = 18 };
enum { CONTROL_FPCA = 4 }; /* the FPU's registers are in use (ARMv7-M, B1.4.4) */
enum { MAY_READ = 1, MAY_WRITE = 2, MAY_EXECUTE = 4 };
enum { PAGE_BYTES = 4096, SRAM_PAGES_MAX = 80, FUNCTIONS_MAX = 512 };

struct registers {
    int r0, r1, r2, r3, r12, lr, sp, pc, xpsr, nzcvqg, epsr, ipsr, control, s0, fpscr, primask, basepri, faultmask;
};

static const uint32_t NOWHERE = 0xFFFFFFFF;    /* where no run ends */
static const uint32_t EXC_RETURN = 0xFFFFFFE0; /* the first address that returns from an exception (ARMv7-M, B1.5.8) */

/* Flags and CR1 as both kinds of USART have them; the older kind has no register that clears errors. */
struct usart {
    uint32_t page;                                /* the address that the offsets of the registers count from */
    uint32_t status, receive, send, clear, older; /* ISR or SR, RDR, TDR or DR, ICR; 1: the older kind */
    uint32_t enable;                              /* UE in CR1 */
    uint32_t seen;                                /* older kind: errors that SR has told; reading DR clears them */
    uint32_t powered;                             /* its clock is on */
    uint32_t cr1;                                 /* copy of CR1 */
    uint32_t full;                                /* 1: rdr holds a byte that was not read */
    uint32_t rdr;                                 /* the byte */
    uint32_t errors;                              /* ISR_ORE and ISR_FE, until they are cleared */
    uint32_t rx_head, rx_tail;                    /* positions modulo RX_QUEUE; equal: empty */
    uint32_t tx_count, tx_stop;                   /* bytes sent; when to leave the guest: STOP_ON_ */
    uint16_t rx[RX_QUEUE];                        /* received bytes, RX_FRAMING_ERROR beside the byte */
    uint8_t tx[TX_QUEUE];
};

/* A chip on SPI2 that hands out bytes one after the other, whatever it is sent. */
struct spi {
    uint32_t streaming; /* SPI2 is on and the chip is in its burst read; else Python serves the registers */
    uint32_t full, rdr; /* a byte that was not read, as in struct usart */
    uint32_t at, end;   /* stream[at..end) is still to come */
    const uint8_t *stream;
};

/* Programming flash a unit after the other, which Python need not see. */
struct flash {
    uint32_t control;     /* copy of CR */
    uint32_t status;      /* SR */
    uint32_t rest;        /* bytes of a store that was programmed and that Unicorn brings once more, one by one */
    uint64_t operations;  /* programmed units and erased sectors since the board was made */
    uint64_t seen_from;   /* the number of the first operation from now on that Python must see; 0: all */
    uint64_t unit_cycles; /* core cycles that a programmed unit takes */
};

/* uc_tlb_entry: where a page lies, and what may be done there. */
struct tlb_entry {
    uint64_t physical;
    int permissions;
};

/* A function whose calls are counted, callees included, exception handlers not. */
struct call {
    uint32_t entry;        /* address of its first instruction */
    uint32_t active;       /* 1: a call is in progress; a call within it belongs to it */
    uint32_t back, sp;     /* where that call returns to, and the stack pointer then */
    uint64_t since;        /* `thread` when it began */
    uint64_t count;        /* calls that began */
    uint64_t instructions; /* in calls that returned */
};

/* What the caches did, since it was last cleared. */
struct cache_use {
    uint64_t instruction_misses, data_misses, write_backs;
};

struct native {
    uint8_t *memory[REGIONS]; /* the host's view of guest memory */
    uint32_t base[REGIONS], size[REGIONS];
    uint32_t alias;                           /* where flash is seen once more; base[FLASH]: nowhere */
    uint32_t external, external_size;         /* flash beside the chip; a size of 0: none */
    uint32_t external_line, external_command; /* core cycles of a line of it, and of a command before one */
    uint32_t external_next;                   /* the line that comes without a new command */
    uint64_t *entries[REGIONS];               /* times a block was entered, by halfword of its start */
    uint64_t *retired[REGIONS];               /* instructions retired in blocks that start there */
    uint32_t *blocks[REGIONS];                /* bytes << 16 | BLOCK_HAS_FPU | instructions; 0: not seen */
    uint64_t *stalls[REGIONS];                /* cycles that blocks that start there waited for a cache */
    uint8_t code_pages[SRAM_PAGES_MAX];       /* 1: code was fetched from this page of SRAM */
    uint64_t total;                           /* instructions retired since power-on */
    uint64_t thread;                          /* of these, outside exception handlers */
    uint64_t idle;                            /* core cycles without an instruction: sleep, flash operations */
    uint64_t deadline;                        /* leave the guest before the first block that starts here or later */
    uint64_t hard_limit;                      /* leave before a block that would pass this count */
    uint32_t stopped;                         /* STOPPED, or 0 */
    uint32_t fpu_off;                         /* 1: stop before a block with an instruction of the FPU */
    uint32_t watch_masks, masks;              /* 1: also leave when native_masks is not `masks` any more */
    uint32_t block;                           /* address of the last block entered */
    int32_t interrupt;                        /* CPU exception reported by Unicorn, -1: none */
    uint32_t violation, violation_pc, violation_address; /* VIOLATION_, or 0 */
    uint32_t handlers;                                   /* exception handlers in progress */
    uint32_t may_return;  /* 1: one is active, and no other exception is pending: its return needs no look around */
    uint32_t returned;    /* 1: it has returned, which Python has not noted yet */
    uint32_t call_count;  /* of `calls` in use */
    uint32_t inside;      /* calls in progress */
    uint32_t only_inside; /* 1: entries, retired, stalls and cache_use count nothing but calls in progress */
    uint32_t caches_on;   /* 1: the caches are modelled */
    uint32_t caches_seen; /* 1: Python sees the writes that empty the caches */
    struct call calls[CALLS_MAX];
    struct cache instruction_cache, data_cache;
    struct cache_use cache_use;
    int (*emu_start)(void *, uint64_t, uint64_t, uint64_t, size_t);
    int (*emu_stop)(void *);
    int (*reg_read)(void *, int, void *);
    int (*reg_write)(void *, int, const void *);
    uint64_t (*slow_read)(void *, uint32_t, uint32_t);
    void (*slow_write)(void *, uint32_t, uint32_t, uint64_t);
    struct registers reg;
    struct usart usart;
    struct spi spi;
    struct flash flash;
    const struct translation *translation; /* code that runs without Unicorn, or NULL */
    uint64_t *runs;                        /* of its blocks, since they were last taken over */
    uint16_t *owners;                      /* by halfword of flash: 1 + the function of a block of it, or 0 */
    uint8_t **readable, **writable;        /* for translated code: by page of all addresses, memory or NULL */
    uint32_t resumed;                      /* 1 + an address within a block that has been counted, or 0 */
    uint8_t handed_over[FUNCTIONS_MAX];    /* times that a translated function has left it to Unicorn */
    uint64_t translated;                   /* instructions that ran so */
};

/* A register of the guest, by Unicorn's number. */
static inline uint32_t get(const struct native *n, void *uc, int reg)
{
    uint32_t value = 0;
    n->reg_read(uc, reg, &value);
    return value;
}

static inline void set(struct native *n, void *uc, int reg, uint32_t value)
{
    n->reg_write(uc, reg, &value);
}

/* Unicorn's number of r0 to r12, sp and lr. */
static inline int general(const struct native *n, uint32_t number)
{
    return number == 13 ? n->reg.sp : number == 14 ? n->reg.lr : n->reg.r0 + (int)number;
}

#endif
