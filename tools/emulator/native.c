/* The emulator's hot path: everything that runs once a basic block, once a serial byte or once an exception.
 *
 * Loaded with ctypes. Not linked to Unicorn: the entry points used
 * are passed in. Registers of the guest are named by Unicorn's numbers, also passed in.
 */
#include "accesses.h"
#include "translate/translation.h"

#include <string.h>

static uint16_t halfword(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* An instruction of the FPU, whose coprocessors are 10 and 11. */
static int is_fpu(uint16_t first, uint16_t second)
{
    return (first & 0xEC00) == 0xEC00 && (second & 0x0E00) == 0x0A00;
}

/* What `blocks` notes of a block. */
static uint32_t describe(const uint8_t *code, uint32_t size)
{
    uint32_t count = 0, fpu = 0;
    for (uint32_t i = 0; i < size; count++) {
        uint16_t first = halfword(code + i);
        uint32_t bytes = (first >> 11) >= 0x1d ? 4u : 2u;
        if (bytes == 4u && i + 4u <= size && is_fpu(first, halfword(code + i + 2))) {
            fpu = BLOCK_HAS_FPU;
        }
        i += bytes;
    }
    return size << 16 | fpu | count;
}

/* Unicorn leaves a stale ITSTATE behind the hooks of an access to memory: cleared in EPSR. */
static void clear_it(struct native *n, void *uc)
{
    set(n, uc, n->reg.epsr, 1u << 24);
}

/* UC_HOOK_TLB_FILL: addresses are what they are. A page of SRAM is for code from where code is first fetched from it:
 * Unicorn looks for translated code to forget at every store into a page that may hold some, by the slow way. */
int native_tlb_fill(void *uc, uint64_t address, int type, struct tlb_entry *entry, struct native *n)
{
    uint32_t offset = (uint32_t)address - n->base[SRAM];
    entry->physical = address;
    entry->permissions = MAY_READ | MAY_WRITE | MAY_EXECUTE;
    if (type == MEM_FETCH) {
        if (offset < n->size[SRAM]) {
            n->code_pages[offset / PAGE_BYTES] = 1;
        }
    } else {
        clear_it(n, uc);
        if (offset < n->size[SRAM] && !n->code_pages[offset / PAGE_BYTES]) {
            entry->permissions = MAY_READ | MAY_WRITE;
        }
    }
    return 1;
}

/* UC_HOOK_MEM_FETCH_UNMAPPED of the addresses that return from an exception: nothing is there, which ends the run. */
int native_exc_return(void *uc, int type, uint64_t address, int size, int64_t value, struct native *n)
{
    (void)type, (void)address, (void)size, (void)value;
    clear_it(n, uc);
    return 0;
}

/* PRIMASK, FAULTMASK and BASEPRI in one number. */
uint32_t native_masks(void *uc, struct native *n)
{
    return (get(n, uc, n->reg.primask) & 1) | (get(n, uc, n->reg.faultmask) & 1) << 1 |
           (get(n, uc, n->reg.basepri) & 0xff) << 8;
}

/* Whether a watched call may begin or end here. */
static int is_watched(const struct native *n, uint32_t address)
{
    for (uint32_t i = 0; i < n->call_count; i++) {
        if (address == n->calls[i].entry || address == n->calls[i].back) {
            return 1;
        }
    }
    return 0;
}

/* UC_HOOK_BLOCK: counts, and stops. Stopping here, before the block, is the only place where it is exact. */
void native_block(void *uc, uint64_t address, uint32_t size, struct native *n)
{
    uint32_t at = (uint32_t)address;
    if (at - n->alias < n->size[FLASH]) {
        at += n->base[FLASH] - n->alias;
    }
    int region = at - n->base[FLASH] < n->size[FLASH] ? FLASH : SRAM;
    uint32_t offset = at - n->base[region];
    if (offset >= n->size[region]) {
        return;
    }
    uint32_t i = offset >> 1, known = n->blocks[region][i], resumed = n->resumed;
    n->resumed = 0;
    if (resumed == at + 1u) {
        return;
    }
    if (known >> 16 != size || region == SRAM) { /* code in SRAM changes without notice */
        known = describe(n->memory[region] + offset, size);
        n->blocks[region][i] = known;
    }
    uint32_t count = known & BLOCK_COUNT;
    if (n->total + count > n->hard_limit) {
        n->stopped = STOPPED_AT_LIMIT;
    } else if (n->total >= n->deadline || (n->watch_masks && native_masks(uc, n) != n->masks)) {
        n->stopped = STOPPED;
    } else if (n->fpu_off && (known & BLOCK_HAS_FPU) != 0 && region == FLASH) {
        n->stopped = STOPPED_AT_FPU;
    } else if (region == FLASH && n->translation != NULL && begins_function(n, i) && may_translate(n, uc)) {
        n->stopped = STOPPED_AT_FUNCTION;
    }
    if (n->stopped) {
        n->emu_stop(uc);
        return;
    }
    n->block = at;
    if (!n->handlers && is_watched(n, at)) {
        watch_calls(n, at, get(n, uc, n->reg.lr), get(n, uc, n->reg.sp));
    }
    if (counts(n)) {
        n->entries[region][i]++;
        n->retired[region][i] += count;
    }
    n->total += count;
    n->thread += n->handlers ? 0u : count;
    if (n->caches_on) {
        fetch(n, at, size);
    }
}

/* UC_HOOK_INTR: SVC, BKPT, exception return. */
void native_interrupt(void *uc, uint32_t number, struct native *n)
{
    n->interrupt = (int32_t)number;
    n->emu_stop(uc);
}

static void violate(struct native *n, void *uc, uint32_t kind, uint32_t pc, uint32_t address)
{
    n->violation = kind;
    n->violation_pc = pc;
    n->violation_address = address;
    n->emu_stop(uc);
}

/* UC_HOOK_CODE where a block with FPU instructions was about to run before CPACR is set: they are a fault then, but
 * Unicorn never checks. */
void native_fpu_guard(void *uc, uint64_t address, uint32_t size, struct native *n)
{
    uint32_t offset = (uint32_t)address - n->base[FLASH];
    if (size != 4 || offset >= n->size[FLASH]) {
        return;
    }
    uint16_t first = halfword(n->memory[FLASH] + offset), second = halfword(n->memory[FLASH] + offset + 2);
    if (is_fpu(first, second)) {
        violate(n, uc, VIOLATION_NO_FPU, (uint32_t)address, (uint32_t)address);
    }
}

/* LDM, STM, LDRD, STRD, LDREX, VLDR, VSTR, VLDM, VSTM, PUSH, POP: never unaligned on a Cortex-M7, whatever CCR says. */
static int needs_alignment(uint16_t first, uint16_t second)
{
    if ((first & 0xFFE0) == 0xE8C0 || (first & 0xFFE0) == 0xEC40) {
        return 0; /* bytes and halfwords of LDREX, STREX and tables; VMOV of two registers */
    }
    return (first & 0xFE00) == 0xE800 || ((first & 0xFE00) == 0xEC00 && (second & 0x0E00) == 0x0A00) ||
           (first & 0xF000) == 0xC000 || (first & 0xF600) == 0xB400;
}

/* Bytes from the base register to the first word that such an instruction accesses (ARMv7-M, A7.7). */
static int32_t first_word(uint16_t first, uint16_t second)
{
    int before = (first >> 8) & 1, up = (first >> 7) & 1;
    int32_t words = second & 0xff;
    if (first < 0xE800) { /* PUSH; the other short ones begin at the base */
        return (first & 0xFE00) == 0xB400 ? -4 * __builtin_popcount(first & 0x1ffu) : 0;
    }
    if ((first & 0xFE40) == 0xE800) { /* LDM and STM */
        return before ? -4 * __builtin_popcount(second) : 0;
    }
    if ((first & 0xFFE0) == 0xE840) { /* LDREX and STREX */
        return 4 * words;
    }
    int multiple = (first & 0xFE00) == 0xEC00 && (first & 0x0020) != 0; /* VLDM and VSTM, which write back */
    if (!before || (multiple && up)) {
        return 0;
    }
    return up ? 4 * words : -4 * words;
}

/* UC_HOOK_CODE in strict mode. All that they add to their base is whole words: the base tells. */
void native_alignment(void *uc, uint64_t address, uint32_t size, struct native *n)
{
    (void)size;
    uint32_t pc = (uint32_t)address, offset = pc - n->base[FLASH];
    if (offset > n->size[FLASH] - 4) {
        return;
    }
    uint16_t first = halfword(n->memory[FLASH] + offset), second = halfword(n->memory[FLASH] + offset + 2);
    if (!needs_alignment(first, second)) {
        return;
    }
    uint32_t base = first >= 0xE800 ? first & 15u : first >= 0xC000 ? (first >> 8) & 7u : 13u;
    uint32_t value = base == 15u ? 0u : get(n, uc, general(n, base)); /* PC counts as aligned */
    if ((value & 3) != 0) {
        violate(n, uc, VIOLATION_ALIGNMENT, pc, value + (uint32_t)first_word(first, second));
    }
}

/* UC_HOOK_MEM_READ and _WRITE of memory that is cached. */
void native_data_access(void *uc, int type, uint64_t address, int size, int64_t value, struct native *n)
{
    (void)value;
    clear_it(n, uc);
    data_access(n, (uint32_t)address, (uint32_t)size, type == MEM_WRITE);
}

/* ---------------------------------------------------------------- flash */

/* The block that begins at halfword `i` of flash reaches to this byte, where one does. */
static uint32_t block_end(const struct native *n, uint32_t i)
{
    return 2u * i + (n->blocks[FLASH][i] >> 16);
}

/* First halfword of flash at which a block may begin that reaches to `offset`. */
static uint32_t first_block(uint32_t offset)
{
    return (offset > BLOCK_BYTES_MAX ? offset - BLOCK_BYTES_MAX : 0u) / 2u;
}

/* Whether code has run from any of these bytes of flash. */
static int holds_code(const struct native *n, uint32_t offset, uint32_t size)
{
    for (uint32_t i = first_block(offset); 2u * i < offset + size && 2u * i < n->size[FLASH]; i++) {
        if (n->blocks[FLASH][i] != 0 && block_end(n, i) > offset) {
            return 1;
        }
    }
    return 0;
}

/* These bytes of flash have changed: forget the blocks that reach into them. Returns whether there were any. */
uint32_t native_forget(struct native *n, uint32_t offset, uint32_t size)
{
    uint32_t any = 0;
    for (uint32_t i = first_block(offset); 2u * i < offset + size && 2u * i < n->size[FLASH]; i++) {
        if (n->blocks[FLASH][i] != 0 && block_end(n, i) > offset) {
            n->blocks[FLASH][i] = 0;
            any = 1;
        }
    }
    return any;
}

/* Bring `seen`, flash as it was, up to date. Returns whether code that has run is not what it was. */
uint32_t native_flash_moved(struct native *n, uint8_t *seen)
{
    uint32_t moved = 0;
    for (uint32_t page = 0; page < n->size[FLASH]; page += PAGE_BYTES) {
        const uint8_t *now = n->memory[FLASH] + page;
        if (memcmp(seen + page, now, PAGE_BYTES) == 0) {
            continue;
        }
        memcpy(seen + page, now, PAGE_BYTES);
        moved |= native_forget(n, page, PAGE_BYTES);
    }
    return moved;
}

/* UC_HOOK_MEM_WRITE_PROT of flash, which drops the store: programming clears bits and takes its time. Returns 0 where
 * Python has to look: it is no plain store of a unit, the power fails in it, or code was there. */
int native_flash_store(void *uc, int type, uint64_t address, int size, int64_t value, struct native *n)
{
    (void)type;
    struct flash *f = &n->flash;
    uint32_t offset = (uint32_t)address - n->base[FLASH], bytes = (uint32_t)size;
    if (f->rest != 0) {
        f->rest -= bytes;
        clear_it(n, uc);
        return 1;
    }
    int open =
        (f->control & (CR_PG | (uint32_t)CR_LOCK)) == CR_PG && bytes == 1u << (f->control >> CR_PSIZE_SHIFT & 3u);
    if (!open || offset % bytes != 0 || f->operations + 1 >= f->seen_from || holds_code(n, offset, bytes)) {
        return 0;
    }
    for (uint32_t i = 0; i < bytes; i++) {
        n->memory[FLASH][offset + i] &= (uint8_t)((uint64_t)value >> 8 * i);
    }
    f->operations++;
    n->idle += f->unit_cycles;
    n->deadline -=
        n->deadline < f->unit_cycles ? n->deadline : f->unit_cycles; /* a count that is due so much earlier */
    clear_it(n, uc);
    return 1;
}

/* uc_mmio_map callbacks for the page of its registers: SR is read after each unit. */
uint64_t native_flash_read(void *uc, uint64_t offset, unsigned size, struct native *n)
{
    if (offset == FLASH_SR) {
        return n->flash.status;
    }
    return n->slow_read(uc, (uint32_t)offset + FLASH_PAGE, size);
}

void native_flash_write(void *uc, uint64_t offset, unsigned size, uint64_t value, struct native *n)
{
    n->slow_write(uc, (uint32_t)offset + FLASH_PAGE, size, value);
}

/* ---------------------------------------------------------------- serial line */

/* Move the next received byte to RDR if that is free. */
static void usart_receive(struct usart *u)
{
    if (u->full || u->rx_head == u->rx_tail || (u->cr1 & (u->enable | CR1_RE)) != (u->enable | CR1_RE)) {
        return;
    }
    uint16_t byte = u->rx[u->rx_head % RX_QUEUE];
    u->rx_head++;
    u->rdr = byte & 0xffu;
    u->full = 1;
    if (byte & RX_FRAMING_ERROR) {
        u->errors |= ISR_FE;
    }
}

uint32_t native_usart_status(struct native *n)
{
    usart_receive(&n->usart);
    uint32_t ready = ISR_TXE | ISR_TC | (n->usart.older ? 0u : (uint32_t)ISR_TEACK_REACK);
    return ready | n->usart.errors | (n->usart.full ? ISR_RXNE : 0u);
}

/* The level of its interrupt line; the transmitter is always ready. */
uint32_t native_usart_interrupts(struct native *n)
{
    uint32_t cr1 = n->usart.cr1;
    if ((cr1 & n->usart.enable) == 0) {
        return 0;
    }
    int received = (cr1 & CR1_RXNEIE) != 0 && (native_usart_status(n) & (ISR_RXNE | ISR_ORE)) != 0;
    return received || (cr1 & (CR1_TCIE | CR1_TXEIE)) != 0;
}

static void usart_send(struct native *n, uint8_t byte)
{
    struct usart *u = &n->usart;
    if ((u->cr1 & (u->enable | CR1_TE)) != (u->enable | CR1_TE) || u->tx_count == TX_QUEUE) {
        return;
    }
    u->tx[u->tx_count++] = byte;
    if (u->tx_stop == STOP_ON_BYTE || (u->tx_stop == STOP_ON_LINE && byte == '\n') || u->tx_count > TX_QUEUE - 1024) {
        n->deadline = 0;
    }
}

/* uc_mmio_map callbacks for the page of the USART; what is not urgent goes on to Python. */
uint64_t native_usart_read(void *uc, uint64_t offset, unsigned size, struct native *n)
{
    struct usart *u = &n->usart;
    if (u->powered && offset == u->status) {
        uint32_t status = native_usart_status(n);
        u->seen = u->older ? u->errors : 0u;
        return status;
    }
    if (u->powered && offset == u->receive) {
        uint32_t byte = u->rdr;
        u->full = 0;
        u->errors &= ~u->seen;
        u->seen = 0;
        usart_receive(u);
        return byte;
    }
    return n->slow_read(uc, (uint32_t)offset + u->page, size);
}

void native_usart_write(void *uc, uint64_t offset, unsigned size, uint64_t value, struct native *n)
{
    if (n->usart.powered && offset == n->usart.send) {
        usart_send(n, (uint8_t)value);
    } else if (n->usart.powered && offset == n->usart.clear && !n->usart.older) {
        n->usart.errors &= ~(uint32_t)value;
    } else {
        n->slow_write(uc, (uint32_t)offset + n->usart.page, size, value);
    }
}

/* ---------------------------------------------------------------- a picture from the camera */

/* uc_mmio_map callbacks for the page that SPI2 is on. */
uint64_t native_spi_read(void *uc, uint64_t offset, unsigned size, struct native *n)
{
    struct spi *s = &n->spi;
    if (s->streaming && offset == SPI2_SR) {
        return SPI_SR_TXE | (s->full ? SPI_SR_RXNE : 0u);
    }
    if (s->streaming && offset == SPI2_DR) {
        s->full = 0;
        return s->rdr;
    }
    return n->slow_read(uc, (uint32_t)offset + SPI2_PAGE, size);
}

void native_spi_write(void *uc, uint64_t offset, unsigned size, uint64_t value, struct native *n)
{
    struct spi *s = &n->spi;
    if (s->streaming && offset == SPI2_DR && size == 1 && s->at < s->end) {
        s->rdr = s->stream[s->at++];
        s->full = 1;
    } else {
        n->slow_write(uc, (uint32_t)offset + SPI2_PAGE, size, value);
    }
}

/* ---------------------------------------------------------------- system control space (ARMv7-M, B3.2) */

enum { ICIALLU = 0xF50, BPIALL = 0xF78 }; /* the first and the last register of cache maintenance, B3.2.24 */

/* uc_mmio_map callbacks for its page. A boot empties the caches by thousands of writes, which change nothing here. */
uint64_t native_system_read(void *uc, uint64_t offset, unsigned size, struct native *n)
{
    return n->slow_read(uc, (uint32_t)offset + SYSTEM_PAGE, size);
}

void native_system_write(void *uc, uint64_t offset, unsigned size, uint64_t value, struct native *n)
{
    if (n->caches_seen || offset < ICIALLU || offset > BPIALL) {
        n->slow_write(uc, (uint32_t)offset + SYSTEM_PAGE, size, value);
    }
}

/* ---------------------------------------------------------------- exceptions (ARMv7-M, B1.5.6 to B1.5.8) */

enum { FRAME = 8, FRAME_FPU = 26, CONTROL_SPSEL = 2, XPSR_ALIGNED = 1 << 9, EPSR_T = 1 << 24 };

static void read_frame(struct native *n, void *uc, uint32_t *frame, uint32_t pc, int fpu)
{
    const int core[] = {n->reg.r0, n->reg.r1, n->reg.r2, n->reg.r3, n->reg.r12, n->reg.lr};
    for (int i = 0; i < 6; i++) {
        frame[i] = get(n, uc, core[i]);
    }
    frame[6] = pc;
    frame[7] = (get(n, uc, n->reg.xpsr) & ~(uint32_t)XPSR_ALIGNED) | EPSR_T;
    if (!fpu) {
        return;
    }
    for (int i = 0; i < 16; i++) {
        frame[FRAME + i] = get(n, uc, n->reg.s0 + i);
    }
    frame[24] = get(n, uc, n->reg.fpscr);
    frame[25] = 0;
}

/* Stack the frame and enter exception `number`, whose handler the caller then starts. Returns 0, or the address below
 * SRAM that the frame would have reached: a stack overflow. FP registers are stacked at once, not lazily. */
uint32_t native_enter(void *uc, struct native *n, uint32_t number, uint32_t pc, uint32_t flags)
{
    uint32_t frame[FRAME_FPU], control = get(n, uc, n->reg.control), sp = get(n, uc, n->reg.sp);
    int fpu = (control & CONTROL_FPCA) != 0;
    uint32_t size = fpu ? sizeof frame : FRAME * 4u, to = (sp - size) & ~7u;
    read_frame(n, uc, frame, pc, fpu);
    if ((sp & 4) != 0) {
        frame[7] |= XPSR_ALIGNED;
    }
    uint32_t offset = to - n->base[SRAM];
    if ((flags & ENTER_UNSTACKED) == 0) {
        if (offset >= n->size[SRAM] || offset + size > n->size[SRAM]) {
            return to;
        }
        memcpy(n->memory[SRAM] + offset, frame, size);
    }
    n->handlers++;
    set(n, uc, n->reg.sp, to);
    set(n, uc, n->reg.ipsr, number); /* Unicorn switches to the main stack here */
    set(n, uc, n->reg.control, control & 1u);
    set(n, uc, n->reg.epsr, EPSR_T);
    uint32_t mode = (flags & ENTER_NESTED) != 0 ? 1u : (control & CONTROL_SPSEL) != 0 ? 0xDu : 9u;
    set(n, uc, n->reg.lr, 0xFFFFFFE0u | (fpu ? 0u : 0x10u) | mode);
    return 0;
}

/* Return from an exception to the one below it (`outer`, 0: thread). *pc is where to go on. Returns 0, or the address
 * outside SRAM where a frame should have been. */
uint32_t native_leave(void *uc, struct native *n, uint32_t exc_return, uint32_t outer, uint32_t *pc)
{
    int fpu = (exc_return & 0x10) == 0;
    uint32_t frame[FRAME_FPU], size = fpu ? sizeof frame : FRAME * 4u;
    uint32_t spsel = (exc_return & 0xF) == 0xD ? CONTROL_SPSEL : 0u;
    set(n, uc, n->reg.control, (get(n, uc, n->reg.control) & 1u) | spsel);
    set(n, uc, n->reg.ipsr, outer);
    uint32_t sp = get(n, uc, n->reg.sp), offset = sp - n->base[SRAM];
    if (offset >= n->size[SRAM] || offset + size > n->size[SRAM]) {
        return sp;
    }
    memcpy(frame, n->memory[SRAM] + offset, size);
    n->handlers--;
    const int core[] = {n->reg.r0, n->reg.r1, n->reg.r2, n->reg.r3, n->reg.r12, n->reg.lr};
    for (int i = 0; i < 6; i++) {
        set(n, uc, core[i], frame[i]);
    }
    for (int i = 0; fpu && i < 16; i++) {
        set(n, uc, n->reg.s0 + i, frame[FRAME + i]);
    }
    if (fpu) {
        set(n, uc, n->reg.fpscr, frame[24]);
    }
    set(n, uc, n->reg.sp, sp + size + ((frame[7] & XPSR_ALIGNED) ? 4u : 0u));
    set(n, uc, n->reg.control, (get(n, uc, n->reg.control) & 3u) | (fpu ? CONTROL_FPCA : 0u));
    set(n, uc, n->reg.nzcvqg, frame[7]);
    set(n, uc, n->reg.epsr, (frame[7] & 0x0700FC00u) | EPSR_T);
    *pc = frame[6] | 1u;
    return 0;
}

/* Run from `pc` to `until` or a reason to stop, by translated code where there is some. */
static int go(void *uc, struct native *n, uint32_t pc, uint32_t until)
{
    int translates = until == NOWHERE;
    for (;;) {
        if (translates && is_translated(n, pc) && may_translate(n, uc)) {
            pc = run_translated(uc, n, pc & ~1u);
        }
        int error = n->emu_start(uc, pc | 1u, until, 0, 0);
        if (n->stopped != STOPPED_AT_FUNCTION) {
            return error;
        }
        n->stopped = 0;
        pc = get(n, uc, n->reg.pc);
    }
}

/* As uc_emu_start does. Where nothing waits for it, the return from an exception is done here. */
int native_run(void *uc, struct native *n, uint32_t pc, uint32_t until)
{
    int error = go(uc, n, pc & ~1u, until);
    uint32_t from = n->may_return ? get(n, uc, n->reg.pc) : 0u;
    int due = n->total >= n->deadline || n->total >= n->hard_limit;
    if (error == 0 || from < EXC_RETURN || due || native_usart_interrupts(n) != 0 ||
        native_leave(uc, n, from, 0, &pc) != 0) {
        return error;
    }
    n->may_return = 0;
    n->returned = 1;
    return go(uc, n, pc & ~1u, until);
}

uint32_t native_size(void)
{
    return (uint32_t)sizeof(struct native);
}
