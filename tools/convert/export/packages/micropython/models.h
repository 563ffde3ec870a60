/* SPDX-License-Identifier: Apache-2.0 */
/* The models of this folder by their names. */
#ifndef MICROTRAIN_MODELS_H
#define MICROTRAIN_MODELS_H

#include "microtrain.h"

struct microtrain_named {
    const char *microtrain_name;
    const struct microtrain_model *microtrain_model;
};

/* The last one is NULL. */
extern const struct microtrain_named microtrain_models[];

#endif
