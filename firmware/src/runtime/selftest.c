#include "selftest.h"

#include <string.h>

#include "board.h"
#include "crc.h"
#include "kernels/conv2d.h"
#include "model_api.h"
#include "selftest_vectors.h"

static uint32_t aligned(uint32_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* The dense and the depthwise convolution: the result at the start of the arena, the scratch behind it. */
static int run_dense(void)
{
    struct split_weights w = {.frozen = selftest_dense_w};
    uint32_t out = aligned(sizeof selftest_dense_y);
    if (out + conv2d_fwd_scratch(&selftest_dense) > model_info.arena_bytes) {
        return SELFTEST_NO_ROOM;
    }
    conv2d_fwd_s8(&selftest_dense, selftest_x, &w, selftest_b, (int8_t *)model_arena, NULL, model_arena + out);
    return memcmp(model_arena, selftest_dense_y, sizeof selftest_dense_y) ? SELFTEST_ERR_KERNEL : SELFTEST_OK;
}

static int run_depthwise(void)
{
    struct split_weights w = {.frozen = selftest_depthwise_w};
    uint32_t out = aligned(sizeof selftest_depthwise_y);
    if (out + dwconv2d_fwd_scratch(&selftest_depthwise) > model_info.arena_bytes) {
        return SELFTEST_NO_ROOM;
    }
    dwconv2d_fwd_s8(&selftest_depthwise, selftest_x, &w, selftest_b, (int8_t *)model_arena, NULL, model_arena + out);
    return memcmp(model_arena, selftest_depthwise_y, sizeof selftest_depthwise_y) ? SELFTEST_ERR_KERNEL : SELFTEST_OK;
}

int selftest_kernels(uint32_t *failed)
{
    *failed = 0;
    int status = run_dense();
    if (status == SELFTEST_OK) {
        *failed = 1;
        status = run_depthwise();
    }
    return status;
}

int selftest_flash(uint32_t *found)
{
    *found = 0;
    for (uint32_t i = 0; i < model_info.part_count; i++) {
        board_alive();
        *found = crc32(*found, model_info.parts[i].bytes, model_info.parts[i].size);
    }
    return *found == model_info.parts_crc ? SELFTEST_OK : SELFTEST_ERR_FLASH;
}

/* One element of the march: every word must hold `expected` and then holds `next`. Returns the index of the first that
 * fails, or `words`. */
static uint32_t march(uint32_t words, int down, uint32_t expected, uint32_t next)
{
    volatile uint32_t *memory = (volatile uint32_t *)(void *)model_arena;
    board_alive();
    for (uint32_t k = 0; k < words; k++) {
        uint32_t i = down ? words - 1 - k : k;
        if (memory[i] != expected) {
            return i;
        }
        memory[i] = next;
    }
    return words;
}

int selftest_memory(uint32_t *bad)
{
    static const uint32_t backgrounds[] = {0, 0x55555555};
    uint32_t words = model_info.arena_bytes / 4, i = words;
    for (uint32_t b = 0; b < 2 && i == words; b++) {
        uint32_t zero = backgrounds[b], one = ~zero;
        for (volatile uint32_t *memory = (volatile uint32_t *)(void *)model_arena; i > 0; i--) {
            memory[i - 1] = zero;
        }
        const uint32_t from[] = {zero, one, zero, one, zero}, to[] = {one, zero, one, zero, zero};
        i = words;
        for (int element = 0; element < 5 && i == words; element++) {
            i = march(words, element >= 2, from[element], to[element]);
        }
    }
    *bad = 4 * i;
    return i == words ? SELFTEST_OK : SELFTEST_ERR_MEMORY;
}
