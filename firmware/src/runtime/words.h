/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the words of a struct microtrain, and how a call comes to it. */
#ifndef WORDS_H
#define WORDS_H

#include <string.h>

#include "checkpoint.h"
#include "instance.h"
#include "session.h"

#ifdef MICROTRAIN_LIBRARY
#include "fpu.h"

#define MAGIC 0x4e49544du /* "MTIN" */

#if defined(__GCC_ATOMIC_INT_LOCK_FREE) && __GCC_ATOMIC_INT_LOCK_FREE == 2
#define ATOMIC 1
#else
#define ATOMIC 0 /* RV32IMC, Cortex-M0: a call of the C library would take its place */
#endif

enum job { NO_JOB, ROW, INFERENCE, TRAINING, RECALLING };

struct instance {
    volatile uint32_t magic;
    volatile uint32_t running; /* a call is under way */
    uint32_t job;              /* what runs in pieces */
    uint32_t next;             /* step of it */
    uint32_t kept;             /* 1: its input has become a record, or has been left out */
    uint32_t scored;           /* 1: the scores of an inference in pieces can be read */
    int read_failed;           /* by the storage */
    uint32_t slides;           /* of the session, behind an inference in pieces */
    struct session session;
    struct model_pass pass;
    struct pace pace;
};
_Static_assert(sizeof(struct instance) <= sizeof(struct microtrain), "MICROTRAIN_WORDS is too small");

#define IMPRINTS(s) ((s)->model->imprint_add) /* it was converted with statistics of features */
#define LOOKS(s) ((s)->seen)

#else

struct instance {
    struct session session;
    struct checkpoint checkpoint;
};
_Static_assert(sizeof(struct instance) == sizeof(struct microtrain), "MICROTRAIN_WORDS are not those of an instance");

#if MODEL_IMPRINT > 0
#define IMPRINTS(s) ((void)(s), 1)
#define LOOKS(s) ((s)->seen)
#else
#define LOOKS(s) 0u
#endif

#endif

#if MODEL_RECORDS > 0
#define HELD(s) replay_held(s)
#else
#define HELD(s) 0u
#endif

/* What a call needs of the instance. */
enum needs { NEEDS_NOTHING, NEEDS_NO_STEP };

/* A call on its way in. status: OK, or why it may not run. */
struct call {
    struct instance *instance;
    int status;
    uint32_t fpu;
};

static inline struct instance *inside(struct microtrain *m)
{
    return (struct instance *)(void *)m->words;
}

static inline const struct instance *look_inside(const struct microtrain *m)
{
    return (const struct instance *)(const void *)m->words;
}

#ifdef MICROTRAIN_LIBRARY

static inline int under_way(const struct instance *i)
{
    return i->job != NO_JOB;
}

/* Whether the instance is free; it is this call's from then on. A core without atomic instructions is interrupted by calls
 * that end before this one goes on, and only by those. */
static inline int take(struct instance *i)
{
#if ATOMIC
    return __atomic_exchange_n(&i->running, 1u, __ATOMIC_ACQUIRE) == 0;
#else
    uint32_t free = i->running == 0;
    i->running = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return (int)free;
#endif
}

static inline void let_go(struct instance *i)
{
#if ATOMIC
    __atomic_store_n(&i->running, 0u, __ATOMIC_RELEASE);
#else
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    i->running = 0;
#endif
}

static inline struct call refused(int status)
{
    return (struct call){NULL, status, 0};
}

/* What is asked of the instance is asked behind `take`: a call from an interrupt in front of that has ended. */
static struct call enter(struct microtrain *m, enum needs needs)
{
    struct instance *i = m ? inside(m) : NULL;
    if (!i) {
        return refused(MICROTRAIN_ERR_ARGUMENT);
    }
    if (i->magic != MAGIC) {
        return refused(MICROTRAIN_ERR_INSTANCE);
    }
    if (!take(i)) {
        return refused(MICROTRAIN_ERR_BUSY);
    }
    if (needs == NEEDS_NO_STEP && under_way(i)) {
        let_go(i);
        return refused(MICROTRAIN_ERR_BUSY);
    }
    i->scored = 0;
    return (struct call){i, MICROTRAIN_OK, fpu_enter()};
}

/* Whether a row is one, and the one that is next or the first. */
static inline int status_of_row(const struct session *s, uint32_t y, const uint8_t *row)
{
    if (!row || y >= ROWS(s)) {
        return MICROTRAIN_ERR_ARGUMENT;
    }
    return y == 0 || y == s->row ? MICROTRAIN_OK : MICROTRAIN_ERR_ORDER;
}

static int leave(const struct call *call, int status)
{
    fpu_leave(call->fpu);
    let_go(call->instance);
    return status;
}

#else

static inline int under_way(const struct instance *i)
{
    (void)i;
    return 0;
}

/* There is one caller, and nothing that it could get wrong with the instance. */
static inline struct call enter(struct microtrain *m, enum needs needs)
{
    (void)needs;
    return (struct call){inside(m), MICROTRAIN_OK, 0};
}

static inline int leave(const struct call *call, int status)
{
    (void)call;
    return status;
}

#endif

/* Scores of the last inference, whose best class is known. */
static inline void tell(struct session *s, uint32_t best, float *scores, uint32_t *label)
{
    if (scores) {
        memcpy(scores, MODEL(s, logits)(OF(s)), INFO(s)->classes * sizeof *scores);
    }
    if (label) {
        *label = best;
    }
}

#endif
