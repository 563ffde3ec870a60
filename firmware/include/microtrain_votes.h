/* SPDX-License-Identifier: Apache-2.0 */
/* Votes of windows that come one after the other, for what microtrain_predict says of each. C11; C++ may include it. */
#ifndef MICROTRAIN_VOTES_H
#define MICROTRAIN_VOTES_H

#include <stdint.h>

enum { MICROTRAIN_VOTES_MOST = 32 };

/* What windows that come one after the other say together, where one alone errs too often: the class that `need` of the
 * last `of` of them were taken for, 1 <= of <= VOTES_MOST, of / 2 < need <= of. All else begins as zeros. */
struct microtrain_votes {
    uint8_t of, need;
    uint8_t held, at;
    uint16_t last[MICROTRAIN_VOTES_MOST];
};

/* Counts the label that microtrain_predict gave. Returns the class that wins now; -1: none does. Time: constant. */
static inline int32_t microtrain_vote(struct microtrain_votes *v, uint32_t label)
{
    uint32_t room = MICROTRAIN_VOTES_MOST, most = v->of < room ? v->of : room;
    v->last[v->at] = (uint16_t)label;
    v->at = v->at + 1u < most ? (uint8_t)(v->at + 1u) : 0;
    v->held = v->held < most ? (uint8_t)(v->held + 1u) : v->held;
    for (uint32_t i = 0; i < v->held; i++) {
        uint32_t votes = 0;
        for (uint32_t k = 0; k < v->held; k++) {
            votes += v->last[k] == v->last[i];
        }
        if (votes >= v->need) {
            return v->last[i];
        }
    }
    return -1;
}

#endif
