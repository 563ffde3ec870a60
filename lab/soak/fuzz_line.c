/* The firmware's serial line under libFuzzer, with address and undefined-behaviour sanitizers.
 *
 * An input is a chunk size, the place of a pause (2 bytes), and the bytes on the line. The firmware gets them up to the
 * end of each line or frame that the decoder finds in them, and must then have answered it exactly once, and changed
 * nothing unless it is a whole line or an intact frame; and what outlives a restart only by a command that may do so.
 * At the end it must still answer `ping`. Anything else aborts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "decoder.h"
#include "fuzz_board.h"
#include "model_api.h"
#include "protocol.h"
#include "words.h"

enum { HEAD = 3, PAUSE_MS = 600, DATA_OVERHEAD = 16, FRAME_BYTES = 12, CRC_BYTES = 4, INPUT_MAX = 4096 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

static struct protocol device;
static unsigned long long frames, lines; /* that were sent, valid or not */

/* What outlives a restart, or is saved to. */
struct lasting {
    uint8_t trainables[64];
    uint32_t seed, step, replays, autosave, guard, saves;
    float rate;
    uint8_t flash[FUZZ_FLASH_BYTES];
};

/* What only the image or the push at hand is made of. */
struct passing {
    uint32_t row, part_end, received;
    uint8_t active;
};

static void take_state(struct lasting *l, struct passing *p)
{
    const struct instance *learner = look_inside(&device.learner);
    memset(l, 0, sizeof *l);
    memset(p, 0, sizeof *p);
    memcpy(l->trainables, model_trainables, sizeof l->trainables);
    l->seed = learner->session.seed;
    l->step = learner->session.step;
    l->replays = learner->session.replays;
    l->autosave = learner->session.autosave;
    l->guard = learner->session.guard.on;
    l->saves = learner->checkpoint.saves;
    l->rate = learner->session.rate;
    memcpy(l->flash, fuzz_board.flash, sizeof l->flash);
    p->row = learner->session.row;
    p->part_end = learner->session.part_end;
    p->received = device.transfer.received;
    p->active = device.transfer.active;
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "fuzz_line: %s; the device has said:\n%.*s\n", what, (int)fuzz_board.sent,
                  (const char *)fuzz_board.output);
    abort();
}

/* Whether a line begins with a command that may change what outlives a restart. */
static int may_change(const char *line)
{
    static const char *const words[] = {"train", "rehearse", "seed",   "rate",   "replay", "reset",
                                        "save",  "autosave", "forget", "reboot", "guard"};
    line += strspn(line, " ");
    size_t length = strcspn(line, " ");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i]) == length && strncmp(line, words[i], length) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Lines `ok ...` and `err ...` that were said; DATA frames between them are passed over. */
static unsigned finals(void)
{
    const uint8_t *said = fuzz_board.output, *end = said + fuzz_board.sent;
    unsigned count = 0;
    while (said < end) {
        if (*said == 0xa5) {
            said += DATA_OVERHEAD + said[8] + 256 * said[9];
            continue;
        }
        count += memcmp(said, "ok", 2) == 0 || memcmp(said, "err ", 4) == 0;
        said = (const uint8_t *)memchr(said, '\n', (size_t)(end - said)) + 1;
    }
    return count;
}

/* Whether a text is among what was said. */
static int says(const char *text)
{
    size_t size = strlen(text);
    for (size_t at = 0; at + size <= fuzz_board.sent; at++) {
        if (memcmp(fuzz_board.output + at, text, size) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Let the device answer what waits; a restart drops the rest of it, as on the chip. */
static void poll_device(void)
{
    if (setjmp(fuzz_board.restart)) {
        fuzz_board.waiting = 0;
        protocol_start(&device);
    }
    protocol_poll(&device);
}

/* What the bytes up to `end` may do: answers are due, and whether the two kinds of state may change. silent: a frame in
 * them is given up only when the line has been silent for a while. */
struct step {
    size_t end;
    unsigned answers;
    int lasting, passing, silent;
    uint32_t announced; /* CRC of the last push so far */
};

/* What lines have announced: whether WEIGHTS frames may be taken, and the CRC-32 of all that they bring. */
struct push {
    int begun;
    uint32_t crc;
};

/* Bytes that the device has, but has not looked at yet, are lost in a restart. */
static int restarts(const char *line)
{
    line += strspn(line, " ");
    return strncmp(line, "reboot", 6) == 0 && line[6 + strspn(line + 6, " ")] == '\0';
}

static void add(struct step *s, enum meaning what, const struct decoder *d, struct push *push)
{
    s->answers++;
    s->silent |= what == MEANS_TIMEOUT;
    if (what == MEANS_LINE) {
        push->begun |= sscanf(d->line, " push %*s %" SCNx32, &push->crc) == 1;
        s->lasting |= may_change(d->line);
        s->passing = 1;
    } else if (what == MEANS_FRAME) {
        s->lasting |= d->frame_type == FRAME_WEIGHTS && push->begun;
        s->passing = 1;
    }
    s->announced = push->crc;
    frames += what != MEANS_LINE && what != MEANS_BAD_LINE;
    lines += what == MEANS_LINE || what == MEANS_BAD_LINE;
}

/* Returns the number of steps, at most one for each byte and one for what is left. */
static size_t decode(struct decoder *d, const uint8_t *data, size_t size, struct push *push, struct step *steps)
{
    size_t count = 0;
    enum meaning what;
    decoder_feed(d, data, size);
    while ((what = decoder_next(d)) != MEANS_NOTHING) {
        if (count == 0 || steps[count - 1].end < d->end) {
            steps[count++] = (struct step){.end = d->end};
        }
        add(&steps[count - 1], what, d, push);
        if (what == MEANS_LINE && restarts(d->line)) {
            d->at = d->end;
        }
    }
    steps[count++] = (struct step){.end = size};
    return count;
}

static void check(const struct step *s, const struct lasting *l, const struct passing *p)
{
    static struct lasting l_now;
    static struct passing p_now;
    take_state(&l_now, &p_now);
    if (finals() != s->answers) {
        fail("a line or frame is not answered once");
    }
    if (says("ok push done") && decoder_crc32(model_trainables, model_info.trainable_bytes) != s->announced) {
        fail("a push is taken over that is not what was announced");
    }
    if (!s->lasting && memcmp(l, &l_now, sizeof *l) != 0) {
        fail("what was learned, a setting or a checkpoint has changed");
    }
    if (!s->passing && memcmp(p, &p_now, sizeof *p) != 0) {
        fail("the image or the push at hand has changed");
    }
}

/* Send bytes, step by step, and then be silent for a while. */
static void send(struct decoder *d, const uint8_t *data, size_t size, struct push *push)
{
    static struct step steps[INPUT_MAX + 1];
    static struct lasting l;
    static struct passing p;
    size_t count = decode(d, data, size, push, steps), sent = 0;
    for (size_t i = 0; i < count; sent = steps[i++].end) {
        take_state(&l, &p);
        fuzz_board.input = data + sent;
        fuzz_board.waiting = steps[i].end - sent;
        fuzz_board.sent = 0;
        poll_device();
        if (steps[i].silent) {
            fuzz_board.now_ms += PAUSE_MS;
            poll_device();
        }
        check(&steps[i], &l, &p);
    }
    fuzz_board.now_ms += PAUSE_MS;
}

static void tell_counts(void)
{
    const char *name = getenv("FUZZ_COUNTS");
    FILE *file = name ? fopen(name, "w") : NULL;
    if (file) {
        (void)fprintf(file, "%llu %llu\n", frames, lines);
        (void)fclose(file);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int started;
    if (!started) {
        started = atexit(tell_counts) == 0;
    }
    if (size < HEAD || size > INPUT_MAX) {
        return 0;
    }
    struct decoder d = {0};
    struct push push = {0};
    memset(&fuzz_board, 0, sizeof fuzz_board);
    memset(fuzz_board.flash, 0xff, sizeof fuzz_board.flash);
    fuzz_board.chunk = 1u + data[0];
    size_t pause = (data[1] + 256u * data[2]) % (size - HEAD + 1);
    protocol_start(&device);
    send(&d, data + HEAD, pause, &push);
    send(&d, data + HEAD + pause, size - HEAD - pause, &push);
    send(&d, (const uint8_t *)"\nping\n", 6, &push);
    if (strstr((const char *)fuzz_board.output, "ok pong") == NULL) {
        fail("no answer to `ping`");
    }
    return 0;
}

/* Most changes break a check sum and test nothing behind it: give most frames a right one again. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    size = LLVMFuzzerMutate(data, size, max_size);
    for (size_t at = HEAD; at + FRAME_BYTES <= size; at++, seed = seed * 1664525u + 1013904223u) {
        uint8_t *frame = data + at;
        if (frame[0] != 0xa5 || frame[1] != 0x5a || seed >> 29 == 0) {
            continue;
        }
        size_t left = size - at - FRAME_BYTES, payload = frame[8] + 256u * frame[9];
        if (payload + CRC_BYTES > left && left >= CRC_BYTES && seed >> 28 & 1) {
            payload = left - CRC_BYTES;
            frame[8] = (uint8_t)payload;
            frame[9] = (uint8_t)(payload >> 8);
        }
        uint16_t crc = decoder_crc16(frame);
        frame[10] = (uint8_t)crc;
        frame[11] = (uint8_t)(crc >> 8);
        if (payload + CRC_BYTES <= left && seed >> 26 & 3) {
            uint32_t check_sum = decoder_crc32(frame + FRAME_BYTES, payload);
            for (size_t i = 0; i < CRC_BYTES; i++) {
                frame[FRAME_BYTES + payload + i] = (uint8_t)(check_sum >> 8 * i);
            }
        }
    }
    return size;
}
