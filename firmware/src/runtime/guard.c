/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include "instance.h"
#include "kernels/numeric.h"

#ifdef MICROTRAIN_LIBRARY
#define CLASSES(g) ((g)->classes)
#else
#define CLASSES(g) ((void)(g), MODEL_GUESSES)
#endif

void guard_start(struct guard *g, uint32_t on)
{
    g->on = on;
    g->loss = 0.0f;
}

void guard_see(struct guard *g, float loss)
{
    if (g->on) {
        g->loss += (loss - g->loss) / (float)GUARD_STEPS;
    }
}

/* False where the mean is no number. */
static int below(const struct guard *g, float guesses)
{
    return g->loss <= guesses * log_f32((float)CLASSES(g));
}

int guard_diverged(const struct guard *g)
{
    return !below(g, (float)GUARD_LIMIT);
}

int guard_calm(const struct guard *g)
{
    return below(g, 0.5f * (float)GUARD_LIMIT);
}
