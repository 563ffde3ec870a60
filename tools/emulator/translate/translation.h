/* What native.c and translated code share. */
#ifndef EMULATOR_TRANSLATION_H
#define EMULATOR_TRANSLATION_H

#include "../native.h"

enum { LEFT_IN_TIME = 1, LEFT_WITHIN = 2 }; /* before a block; before an instruction of one that has been counted */

/* The guest while translated code runs. */
struct guest {
    uint32_t r[15], pc, it;                     /* r0 to r12, sp, lr; where it goes on, and ITSTATE there */
    uint32_t nf, zf, cf, vf, qf;                /* N and V are bit 31, Z is that zf is 0 */
    uint32_t s[32], fpflags;                    /* N, Z, C and V of FPSCR */
    uint32_t block;                             /* of the instruction that was left within a block: its address */
    uint32_t out;                               /* LEFT_, or 0: the function has ended */
    uint32_t watching;                          /* calls are watched */
    int64_t left;                               /* instructions until it must stop */
    uint64_t end, counting;                     /* what `thread` will be then; 1: blocks are counted, 0: they are not */
    uint64_t *runs;                             /* of each block */
    uint8_t *const *readable, *const *writable; /* by page of the address space: the host's view, or NULL */
};

struct translated_function {
    uint32_t start, end; /* addresses */
    void (*run)(struct native *n, struct guest *g);
};

struct translated_block {
    uint32_t address, note;     /* note: as in `blocks` of struct native */
    uint32_t function, entered; /* entered: 1: the function may be run from here on */
};

struct translation {
    const struct translated_function *functions;
    const struct translated_block *blocks;
    uint32_t function_count, block_count, caches; /* caches: 1: it models them */
};

/* Begin and end the calls of the functions that are watched, where a block begins. */
static inline void watch_calls(struct native *n, uint32_t address, uint32_t lr, uint32_t sp)
{
    for (uint32_t i = 0; i < n->call_count; i++) {
        struct call *c = &n->calls[i];
        if (!c->active && address == c->entry) {
            c->active = 1;
            c->back = lr & ~1u;
            c->sp = sp;
            c->since = n->thread;
            c->count++;
            n->inside++;
        } else if (c->active && address == c->back && sp == c->sp) {
            c->active = 0;
            c->instructions += n->thread - c->since;
            n->inside--;
        }
    }
}

/* Whether translated code owns this address; whether a function of it begins at halfword `i` of flash. */
int is_translated(const struct native *n, uint32_t address);
int begins_function(const struct native *n, uint32_t i);

/* Whether it may run now: exceptions, changes of masks and modes of the FPU are Unicorn's. */
int may_translate(const struct native *n, void *uc);

/* Run it from `pc` as long as there is some. Returns where Unicorn goes on. */
uint32_t run_translated(void *uc, struct native *n, uint32_t pc);

#endif
