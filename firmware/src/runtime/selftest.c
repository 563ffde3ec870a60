/* SPDX-License-Identifier: Apache-2.0 */
#include "selftest.h"

#include <string.h>

#include "crc.h"
#include "instance.h"
#include "kernels/conv2d.h"
#include "selftest_vectors.h"

enum {
    PIXELS = SELFTEST_SIZE * SELFTEST_SIZE,
    SCALE_BYTES = SELFTEST_CHANNELS * sizeof(float),
    FRAC_BITS = 4,
    FRAC_BYTES = sizeof selftest_dense_w * FRAC_BITS / 8,
};

/* Each kernel has its result at the start of the arena and its scratch behind that; NULL where there is no room. */
static uint8_t *scratch_behind(const struct session *s, uint32_t result, uint32_t scratch)
{
    uint32_t start = (result + 7) / 8 * 8;
    return start + scratch > INFO(s)->arena_bytes ? NULL : ARENA(s) + start;
}

static int check(const struct session *s, uint32_t result, uint32_t crc)
{
    return crc32(0, ARENA(s), result) == crc ? SELFTEST_OK : SELFTEST_ERR_KERNEL;
}

static int run_dense(const struct session *s)
{
    struct split_weights w = {.frozen = selftest_dense_w};
    uint32_t size = PIXELS * SELFTEST_OUT;
    uint8_t *scratch = scratch_behind(s, size, conv2d_fwd_scratch(&selftest_dense));
    if (!scratch) {
        return SELFTEST_NO_ROOM;
    }
    conv2d_fwd_s8(&selftest_dense, selftest_x, &w, selftest_b, (int8_t *)ARENA(s), NULL, scratch UNPACED);
    return check(s, size, SELFTEST_DENSE_CRC);
}

static int run_depthwise(const struct session *s)
{
    struct split_weights w = {.frozen = selftest_depthwise_w};
    uint32_t size = PIXELS * SELFTEST_CHANNELS;
    uint8_t *scratch = scratch_behind(s, size, dwconv2d_fwd_scratch(&selftest_depthwise));
    if (!scratch) {
        return SELFTEST_NO_ROOM;
    }
    dwconv2d_fwd_s8(&selftest_depthwise, selftest_x, &w, selftest_b, (int8_t *)ARENA(s), NULL, scratch UNPACED);
    return check(s, size, SELFTEST_DEPTHWISE_CRC);
}

/* The error behind the dense convolution; the kernels only read it. */
static struct error_s8 error(void)
{
    return (struct error_s8){.q = (int8_t *)(uintptr_t)selftest_e, .scale = (float *)(uintptr_t)selftest_e_scale};
}

static int run_input_gradient(const struct session *s)
{
    struct error_s8 ey = error();
    struct error_s8 ex = {.scale = (float *)(void *)ARENA(s), .q = (int8_t *)ARENA(s) + SCALE_BYTES};
    struct split_weights w = {.frozen = selftest_dense_w};
    struct clamp clamp = {.mask = selftest_mask, .m = selftest_m};
    uint32_t size = SCALE_BYTES + PIXELS * SELFTEST_CHANNELS;
    uint8_t *scratch = scratch_behind(s, size, conv2d_bwd_x_scratch(&selftest_dense));
    if (!scratch) {
        return SELFTEST_NO_ROOM;
    }
    conv2d_bwd_x_s8(&selftest_dense, &ey, &w, &clamp, &ex, scratch UNPACED);
    return check(s, size, SELFTEST_INPUT_GRADIENT_CRC);
}

static int run_update(const struct session *s)
{
    struct error_s8 ey = error();
    struct saved_input x = {.x = selftest_x, .c_x = SELFTEST_CHANNELS};
    struct trained_weights w = {
        .w = (int8_t *)ARENA(s),
        .frac = ARENA(s) + sizeof selftest_dense_w,
        .frac_bits = FRAC_BITS,
        .qas = selftest_qas,
    };
    struct sgd sgd = {.lr_weight = 1.0f};
    uint32_t size = sizeof selftest_dense_w + FRAC_BYTES;
    uint8_t *scratch = scratch_behind(s, size, conv2d_bwd_w_scratch(&selftest_dense, SELFTEST_CHANNELS));
    if (!scratch) {
        return SELFTEST_NO_ROOM;
    }
    memcpy(w.w, selftest_dense_w, sizeof selftest_dense_w);
    memset(w.frac, 0, FRAC_BYTES);
    conv2d_bwd_w_s8(&selftest_dense, &ey, &x, SELFTEST_CHANNELS, &w, &sgd, scratch UNPACED);
    return check(s, size, SELFTEST_UPDATE_CRC);
}

static int run(const struct session *s, uint32_t kernel)
{
    switch (kernel) {
    case SELFTEST_DENSE:
        return run_dense(s);
    case SELFTEST_DEPTHWISE:
        return run_depthwise(s);
    case SELFTEST_INPUT_GRADIENT:
        return run_input_gradient(s);
    default:
        return run_update(s);
    }
}

int selftest_kernels(const struct session *s, uint32_t *failed)
{
    int status = SELFTEST_OK;
    for (*failed = 0; *failed < SELFTEST_KERNELS; (*failed)++) {
        status = run(s, *failed);
        if (status != SELFTEST_OK) {
            break;
        }
    }
    return status;
}

int selftest_flash(const struct session *s, uint32_t *found)
{
    *found = 0;
    for (uint32_t i = 0; i < INFO(s)->part_count; i++) {
        ALIVE();
        *found = crc32(*found, INFO(s)->parts[i].bytes, INFO(s)->parts[i].size);
    }
    return *found == INFO(s)->parts_crc ? SELFTEST_OK : SELFTEST_ERR_FLASH;
}

/* One element of the march: every word must hold `expected` and then holds `next`. Returns the index of the first that
 * fails, or `words`. */
static uint32_t march(const struct session *s, uint32_t words, int down, uint32_t expected, uint32_t next)
{
    volatile uint32_t *memory = (volatile uint32_t *)(void *)ARENA(s);
    ALIVE();
    for (uint32_t k = 0; k < words; k++) {
        uint32_t i = down ? words - 1 - k : k;
        if (memory[i] != expected) {
            return i;
        }
        memory[i] = next;
    }
    return words;
}

int selftest_memory(const struct session *s, uint32_t *bad)
{
    static const uint32_t backgrounds[] = {0, 0x55555555};
    uint32_t words = INFO(s)->arena_bytes / 4, i = words;
    for (uint32_t b = 0; b < 2 && i == words; b++) {
        uint32_t zero = backgrounds[b], one = ~zero;
        for (volatile uint32_t *memory = (volatile uint32_t *)(void *)ARENA(s); i > 0; i--) {
            memory[i - 1] = zero;
        }
        const uint32_t from[] = {zero, one, zero, one, zero}, to[] = {one, zero, one, zero, zero};
        i = words;
        for (int element = 0; element < 5 && i == words; element++) {
            i = march(s, words, element >= 2, from[element], to[element]);
        }
    }
    *bad = 4 * i;
    return i == words ? SELFTEST_OK : SELFTEST_ERR_MEMORY;
}
