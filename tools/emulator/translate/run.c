/* Between Unicorn and translated code: where each of them goes on, and what was counted. */
#include "../accesses.h"
#include "translation.h"

enum { NEAR = 256 };           /* instructions for which it is not worth while to leave Unicorn */
enum { HANDED_OVER_MAX = 50 }; /* times until a function is left to Unicorn for good */
enum { FPSCR_MODES = 0x03C00000, FPSCR_DN = 1 << 25 };

static void map_pages(uint8_t **pages, uint32_t address, uint32_t size, uint8_t *memory)
{
    for (uint32_t at = 0; at < size; at += PAGE_BYTES) {
        pages[(address + at) / PAGE_BYTES] = memory == NULL ? NULL : memory + at;
    }
}

/* Take note of translated code; NULL: there is none any more. */
void native_install(struct native *n, const struct translation *t)
{
    n->translation = t;
    if (t == NULL) {
        return;
    }
    memset(n->owners, 0, n->size[FLASH] / 2 * sizeof *n->owners);
    map_pages(n->readable, n->base[FLASH], n->size[FLASH], n->memory[FLASH]);
    map_pages(n->readable, n->alias, n->size[FLASH], n->memory[FLASH]);
    map_pages(n->readable, n->base[SRAM], n->size[SRAM], n->memory[SRAM]);
    for (uint32_t k = 0; k < t->block_count; k++) {
        uint32_t i = (t->blocks[k].address - n->base[FLASH]) >> 1;
        n->owners[i] = t->blocks[k].entered ? (uint16_t)(t->blocks[k].function + 1u) : 0u;
        n->blocks[FLASH][i] = n->blocks[FLASH][i] != 0 ? n->blocks[FLASH][i] : t->blocks[k].note;
    }
}

/* Let loads from the flash beside the chip through, or no longer: memory is NULL. */
void native_external(struct native *n, uint8_t *memory)
{
    map_pages(n->readable, n->external, n->external_size, memory);
}

/* The translated function that has a block at this address, or NULL. */
static const struct translated_function *owner(const struct native *n, uint32_t address)
{
    uint32_t offset = address - n->base[FLASH];
    uint32_t known = offset < n->size[FLASH] ? n->owners[offset >> 1] : 0u;
    return known == 0u ? NULL : n->translation->functions + known - 1u;
}

int is_translated(const struct native *n, uint32_t address)
{
    return n->translation != NULL && owner(n, address) != NULL;
}

int begins_function(const struct native *n, uint32_t i)
{
    return n->owners[i] != 0 && n->translation->functions[n->owners[i] - 1u].start == n->base[FLASH] + 2u * i;
}

int may_translate(const struct native *n, void *uc)
{
    uint64_t end = n->deadline < n->hard_limit ? n->deadline : n->hard_limit;
    return n->translation != NULL && !n->handlers && !n->fpu_off && !n->watch_masks && end > n->total + NEAR &&
           n->translation->caches == n->caches_on && (get(n, uc, n->reg.control) & CONTROL_FPCA) != 0 &&
           (get(n, uc, n->reg.fpscr) & FPSCR_MODES) == FPSCR_DN;
}

/* Stores to where code is are Unicorn's: it forgets what it has translated. */
static void map_sram(struct native *n)
{
    uint32_t first = n->base[SRAM] / PAGE_BYTES;
    for (uint32_t page = 0; page < n->size[SRAM] / PAGE_BYTES; page++) {
        n->writable[first + page] = n->code_pages[page] ? NULL : n->memory[SRAM] + page * PAGE_BYTES;
    }
}

static void fill_guest(struct native *n, void *uc, struct guest *g)
{
    for (uint32_t i = 0; i < 15; i++) {
        g->r[i] = get(n, uc, general(n, i));
    }
    for (int i = 0; i < 32; i++) {
        g->s[i] = get(n, uc, n->reg.s0 + i);
    }
    uint32_t psr = get(n, uc, n->reg.xpsr);
    g->nf = psr, g->zf = ~psr & 1u << 30, g->cf = psr >> 29 & 1u, g->vf = psr << 3, g->qf = psr >> 27 & 1u;
    g->fpflags = get(n, uc, n->reg.fpscr) & 0xF0000000u;
    map_sram(n);
    g->runs = n->runs, g->readable = n->readable, g->writable = n->writable;
    g->watching = n->call_count != 0;
    g->counting = (uint64_t)counts(n);
}

static void spill_guest(struct native *n, void *uc, const struct guest *g)
{
    for (uint32_t i = 0; i < 15; i++) {
        set(n, uc, general(n, i), g->r[i]);
    }
    for (int i = 0; i < 32; i++) {
        set(n, uc, n->reg.s0 + i, g->s[i]);
    }
    uint32_t flags = (g->nf & 1u << 31) | (g->zf == 0u ? 1u << 30 : 0u) | g->cf << 29 | g->vf >> 31 << 28 | g->qf << 27;
    set(n, uc, n->reg.nzcvqg, flags | (get(n, uc, n->reg.xpsr) & 0x000F0000u));
    set(n, uc, n->reg.fpscr, (get(n, uc, n->reg.fpscr) & 0x0FFFFFFFu) | g->fpflags);
    set(n, uc, n->reg.epsr, 1u << 24 | (g->it & 3u) << 25 | g->it >> 2 << 10);
}

/* Count what ran. */
static void take_over(struct native *n)
{
    const struct translation *t = n->translation;
    for (uint32_t k = 0; k < t->block_count; k++) {
        if (n->runs[k] != 0) {
            uint32_t i = (t->blocks[k].address - n->base[FLASH]) >> 1;
            n->entries[FLASH][i] += n->runs[k];
            n->retired[FLASH][i] += n->runs[k] * (t->blocks[k].note & BLOCK_COUNT);
            n->runs[k] = 0;
        }
    }
}

/* A function that goes on handing over has no business here. */
static void handed_over(struct native *n, uint32_t pc)
{
    for (uint32_t f = 0; f < n->translation->function_count; f++) {
        const struct translated_function *function = n->translation->functions + f;
        if (pc - function->start < function->end - function->start && ++n->handed_over[f] == HANDED_OVER_MAX) {
            uint16_t *from = n->owners + ((function->start - n->base[FLASH]) >> 1);
            memset(from, 0, (function->end - function->start) / 2 * sizeof *from);
        }
    }
}

uint32_t run_translated(void *uc, struct native *n, uint32_t pc)
{
    uint64_t end = n->deadline < n->hard_limit ? n->deadline : n->hard_limit;
    struct guest g;
    fill_guest(n, uc, &g);
    int64_t time = end - n->total < 1ull << 62 ? (int64_t)(end - n->total) : (int64_t)1 << 62;
    g.pc = pc, g.out = 0, g.left = time, g.end = n->thread + (uint64_t)time;
    for (const struct translated_function *f = owner(n, pc); f != NULL && g.out == 0; f = owner(n, g.pc)) {
        f->run(n, &g);
    }
    uint64_t done = (uint64_t)(time - g.left);
    n->total += done, n->translated += done;
    n->thread = g.end - (uint64_t)g.left;
    take_over(n);
    if (g.out == LEFT_WITHIN) {
        n->resumed = g.pc + 1u;
        n->block = g.block;
        handed_over(n, g.pc);
    }
    spill_guest(n, uc, &g);
    return g.pc;
}
