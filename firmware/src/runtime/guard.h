/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the losses of training steps. Training has diverged where their running mean, over about GUARD_STEPS of them,
 * is far above the loss of guessing, or no number: tools/simulate/guard.py says the same of a session on a host. */
#ifndef GUARD_H
#define GUARD_H

#include <stdint.h>

enum {
    GUARD_STEPS = 64, /* that the running mean looks back */
    GUARD_LIMIT = 4,  /* largest running mean, in units of log(classes), what guessing costs (MODEL_GUESSES) */
};

struct guard {
    uint32_t on;        /* 0: losses are not watched */
    uint32_t rollbacks; /* since the start */
    float loss;         /* running mean, from 0 on */
#ifdef MICROTRAIN_LIBRARY
    uint32_t classes; /* whose guessing costs as much as the model's */
#endif
};

/* Begin to watch (on = 1), or end it; the running mean starts over. */
void guard_start(struct guard *g, uint32_t on);

void guard_see(struct guard *g, float loss);

int guard_diverged(const struct guard *g);

/* The running mean is below half of the limit: what has been learned may be kept. */
int guard_calm(const struct guard *g);

#endif
