/* The weight update of the published engine, `int8 -= float`: truncates towards zero and wraps (arXiv 2206.15472's
 * code). For comparison only: a library compiled with `-include truncating.h` has it in the place of the firmware's. */
#ifndef NATIVE_TRUNCATING_H
#define NATIVE_TRUNCATING_H

#include "update.h"

static inline void truncating_update(const struct trained_weights *w, uint32_t index, uint32_t count,
                                     const struct steps *steps, uint32_t key)
{
    struct steps left = *steps;
    (void)key;
    for (uint32_t end = index + count; index < end; index++) {
        float step = take_step(&left) / 65536.0f;
        w->w[index] = (int8_t)(int32_t)clampf((float)w->w[index] - step, -1e9f, 1e9f);
    }
}

#define update_weights truncating_update

#endif
