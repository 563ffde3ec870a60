/* SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

{{includes}}

const struct microtrain_named microtrain_models[] = {
{{named}}
    {NULL, NULL},
};
