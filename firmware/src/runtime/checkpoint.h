/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints in flash: what learning has changed, kept over resets and power cuts.
 *
 * A slot (board.h) is erased as a whole. It begins with a header, then records follow one after the other, a save each,
 * until it is full; then the other slot is erased. The newest record whose CRC holds counts, also below a damaged header.
 * It is never in the slot that is being erased, and a record's CRC is written last, so that a power cut at any moment
 * leaves the state from before the save or that from after it. checkpoint_forget clears a word of each older record
 * before it erases: a power cut leaves the newest one or none.
 *
 * What was learned by another model, or laid out by another version, is neither loaded nor overwritten until
 * checkpoint_forget.
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <stdint.h>

#include "session.h"

#define ERASED 0xffffffffu /* a word of flash that nothing has been written to */

#ifdef MICROTRAIN_LIBRARY
enum { BOARD_SLOTS = 2, BOARD_OK = 0, BOARD_ERR_FLASH = -3 };
enum { PROGRAM_BYTES_MIN = 4, PROGRAM_BYTES_MAX = 256 }; /* units of a storage */
enum { SLOT_HEADER_BYTES = 32 };
#endif

enum {
    CHECKPOINT_OK = MICROTRAIN_OK,
    CHECKPOINT_NONE = MICROTRAIN_NONE,                 /* nothing has been saved */
    CHECKPOINT_ERR_MODEL = MICROTRAIN_ERR_OTHER_MODEL, /* the slots hold what another model has learned */
    CHECKPOINT_ERR_VERSION = MICROTRAIN_ERR_FORMAT,    /* they hold records of another layout */
    CHECKPOINT_ERR_SIZE = MICROTRAIN_ERR_SLOT,         /* the trainables do not fit a slot */
    CHECKPOINT_ERR_FLASH = MICROTRAIN_ERR_STORAGE,     /* the flash does not hold what is written: worn out */
#ifdef MICROTRAIN_LIBRARY
    CHECKPOINT_ERR_ERASE = MICROTRAIN_ERR_STORAGE,
#else
    CHECKPOINT_ERR_ERASE = MICROTRAIN_ERR_ERASE, /* a slot cannot be erased: worn out */
#endif
};

enum { CHECKPOINT_ERASES_MAX = 10000 }; /* that a sector is good for: STM32F746 data sheet, flash endurance */

struct checkpoint {
#ifdef MICROTRAIN_LIBRARY
    const struct microtrain_model *model;
    const struct microtrain_storage *storage;
    int *failed;        /* set to 1 where the storage could not be read */
    uint32_t forgotten; /* number of a save that an erase ends, and of all before it; ERASED: it ends none */
#endif
#if MODEL_FLEET_BYTES > 0
    uint32_t again; /* 1: the trainables of the newest record are saved once more, in the place of the present ones */
#endif
    int status;                   /* of the slots: OK, NONE, ERR_MODEL or ERR_VERSION */
    uint32_t model_id, version;   /* of what the slots hold, where that is refused */
    uint32_t slot, offset;        /* of the newest record */
    uint32_t saves;               /* number of the newest record: counts all saves, wraps */
    uint32_t erases[BOARD_SLOTS]; /* of each slot */
    uint32_t saved_step;          /* session.step of the newest record */
};

/* Look at the slots and load the newest record, if there is one; in the library, load what checkpoint_find has found. */
void checkpoint_load(struct checkpoint *c, struct session *s);

#ifdef MICROTRAIN_LIBRARY
/* Of the smallest slot that holds one save, where a unit has 32 bytes or less. */
uint32_t checkpoint_slot_bytes(const struct model_info *info);

/* Look at the slots and load nothing: c->offset is 0 where there is no record to load. */
void checkpoint_find(struct checkpoint *c);
#endif

/* Save the trainables and the session's seed, step, rate, replays, autosave, guard and statistics. A firmware is told before
 * an erase, which takes up to 4 s (microtrain_erasing). After an error the newest record is what it was. */
int checkpoint_save(struct checkpoint *c, const struct session *s);

/* Erase all slots; the session stays as it is. A power cut or an error leaves the newest record or none.
 * CHECKPOINT_OK, CHECKPOINT_ERR_FLASH or CHECKPOINT_ERR_ERASE. */
int checkpoint_forget(struct checkpoint *c);

#if MODEL_FLEET_BYTES > 0
/* The trainables of the newest record, in flash; NULL where there is none. They stay there during the next save. */
const uint8_t *checkpoint_newest(const struct checkpoint *c);
#endif

/* Save where session.autosave steps or more have been trained since the last save, and the guard is calm. CHECKPOINT_OK
 * where not. */
int checkpoint_autosave(struct checkpoint *c, const struct session *s);

/* Back to the newest checkpoint as after a restart, or to the conversion where there is none; but with the records that
 * there are, and at half of the present rate, so that what has diverged does not do so again and again. */
void checkpoint_roll_back(struct checkpoint *c, struct session *s);

/* Saves until the first slot has been erased CHECKPOINT_ERASES_MAX times. */
uint32_t checkpoint_saves_left(const struct checkpoint *c);

#endif
