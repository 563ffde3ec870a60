/* SPDX-License-Identifier: Apache-2.0 */
#include "models.h"
/* clang-format off */

{{includes}}

const struct microtrain_named microtrain_models[] = {
{{named}}
    {NULL, NULL},
};
