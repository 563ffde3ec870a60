/* SPDX-License-Identifier: Apache-2.0 */
/* board.h on a POSIX system: the serial line is stdin and stdout, so that `program` speaks the device's protocol over a
 * pipe. It ends with status 0 when stdin does. Cycles are nanoseconds; there is no button; the rate of a pipe is what
 * it is. Checkpoints are kept in the file that MICROTRAIN_FLASH names, where it is set; without it a restart loses them.
 */
#define _POSIX_C_SOURCE 200809L

#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float operations must round to float: build for SSE2, not for the x87");

enum { IN_BYTES = 65536, OUT_BYTES = 65536, TICK_MS = 20, BAUD_MIN = 9600, BAUD_MAX = 3000000 };

static uint8_t in[IN_BYTES], out[OUT_BYTES];
static size_t in_from, in_end, out_size;
static uint64_t start_ns;

/* Sectors 4 and 7 of the chip, one behind the other. */
static const uint32_t slot_bytes[BOARD_SLOTS] = {128 << 10, 256 << 10};
enum { FLASH_BYTES = 384 << 10 };
static uint8_t memory[FLASH_BYTES], *flash = memory;

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void flush(void)
{
    size_t sent = 0;
    while (sent < out_size) {
        ssize_t n = write(STDOUT_FILENO, out + sent, out_size - sent);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            exit(1); /* nobody listens any more */
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    out_size = 0;
}

/* Wait up to timeout_ms for input and take it. Ends the program at the end of the input. */
static void fill(int timeout_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, timeout_ms) <= 0) {
        return;
    }
    ssize_t n = read(STDIN_FILENO, in, sizeof in);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        flush();
        exit(n == 0 ? 0 : 1);
    }
    in_from = 0;
    in_end = n > 0 ? (size_t)n : 0;
}

/* A new file is erased flash. */
static void open_flash(const char *name)
{
    int file = open(name, O_RDWR | O_CREAT, 0666);
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    int fits = size == FLASH_BYTES || (size == 0 && ftruncate(file, FLASH_BYTES) == 0);
    void *mapped = fits ? mmap(NULL, FLASH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (mapped == MAP_FAILED) {
        (void)fprintf(stderr, "microtrain: MICROTRAIN_FLASH: %s is no file of %d bytes\n", name, FLASH_BYTES);
        exit(1);
    }
    (void)close(file);
    flash = mapped;
    if (size == 0) {
        memset(flash, 0xff, FLASH_BYTES);
    }
}

int board_init(void)
{
    const char *name = getenv("MICROTRAIN_FLASH");
    start_ns = now_ns();
    if (name) {
        open_flash(name);
    } else {
        memset(flash, 0xff, FLASH_BYTES);
    }
    return BOARD_OK;
}

static uint8_t *slot_start(uint32_t slot)
{
    return flash + (slot ? slot_bytes[0] : 0);
}

const uint8_t *board_slot(uint32_t slot)
{
    return slot_start(slot);
}

uint32_t board_slot_bytes(uint32_t slot)
{
    return slot_bytes[slot];
}

int board_slot_erase(uint32_t slot)
{
    memset(slot_start(slot), 0xff, slot_bytes[slot]);
    return BOARD_OK;
}

/* Bits only ever go from 1 to 0, as on the chip. */
int board_slot_write(uint32_t slot, uint32_t offset, const void *words, uint32_t size)
{
    if (offset % 4 || size % 4 || offset > slot_bytes[slot] || size > slot_bytes[slot] - offset) {
        return BOARD_ERR_RANGE;
    }
    uint8_t *to = slot_start(slot) + offset;
    const uint8_t *from = words;
    for (uint32_t i = 0; i < size; i++) {
        to[i] &= from[i];
    }
    return BOARD_OK;
}

const char *board_name(void)
{
    return "native";
}

size_t board_serial_read(uint8_t *data, size_t size)
{
    size_t waiting = in_end - in_from;
    size_t n = size < waiting ? size : waiting;
    memcpy(data, in + in_from, n);
    in_from += n;
    return n;
}

int board_serial_write(const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t room = sizeof out - out_size;
        size_t n = size < room ? size : room;
        memcpy(out + out_size, data, n);
        out_size += n;
        data += n;
        size -= n;
        if (out_size == sizeof out) {
            flush();
        }
    }
    return BOARD_OK;
}

int board_serial_baud(uint32_t baud)
{
    flush();
    return baud < BAUD_MIN || baud > BAUD_MAX ? BOARD_ERR_RANGE : BOARD_OK;
}

void board_wait(void)
{
    flush();
    if (in_from == in_end) {
        fill(TICK_MS);
    }
}

uint32_t board_millis(void)
{
    return (uint32_t)((now_ns() - start_ns) / 1000000u);
}

uint32_t board_cycles(void)
{
    return (uint32_t)now_ns();
}

/* Start the program over, as a chip does: memory fresh, bytes that waited unread lost. */
_Noreturn void board_reset(void)
{
    static char name[] = "microtrain";
    char *arguments[] = {name, NULL};
    flush();
    (void)execv("/proc/self/exe", arguments);
    perror("microtrain: cannot restart");
    exit(1);
}
