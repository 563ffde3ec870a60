/* SPDX-License-Identifier: Apache-2.0 */
/* What a person teaches the board, as far as the model allows it. At first each shot is a look: the head of all looks knows
 * a class from its first picture on. When train mode is left, the board rehearses what it remembers, while nobody presses
 * anything. From then on a shot is a training step, with steps on records behind it. */
#ifndef TEACH_H
#define TEACH_H

#include "demo.h"
#include "protocol.h"

/* Where nothing has been learned yet: the rate for what comes. */
void teach_start(struct microtrain *m);

/* The picture that is in, of class d->shot.label. Sets the rest of d->shot. */
void teach_shot(struct demo *d, struct protocol *p);

/* Train mode is left: so many steps as make every record come up some times may be taken from now on. */
void teach_end(struct demo *d, struct protocol *p);

/* Says when these have been taken. */
void teach_poll(struct demo *d, const struct protocol *p);

#endif
