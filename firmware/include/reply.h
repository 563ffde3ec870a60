/* SPDX-License-Identifier: Apache-2.0 */
/* What the device says: pieces of text written straight to the serial line.
 *
 * A line is `reply_text(...)` and friends, then `reply_end()`. A piece that the line does not take in time (no host,
 * no clock) is dropped: there is nobody to tell.
 */
#ifndef REPLY_H
#define REPLY_H

#include <stdint.h>

void reply_text(const char *text);
void reply_u32(uint32_t value);                  /* " 123": a space, then decimal */
void reply_hex(uint32_t value, uint32_t digits); /* "00ab": no space */
void reply_f32(float value);                     /* " 0.1234": a space, then as %.4f */
void reply_end(void);

void reply_line(const char *text);                /* text and end */
void reply_pair(const char *key, uint32_t value); /* "key 123" */

/* The line that ends an answer. They return what a command returns: 1 after `ok`, 0 after `err`. */
int reply_ok(const char *text);                          /* text begins with "ok" */
int reply_ok_u32(const char *text, uint32_t value);      /* "ok word 123" */
int reply_error(const char *word, const char *sentence); /* "err word sentence" */

#endif
