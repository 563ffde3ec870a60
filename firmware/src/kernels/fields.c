/* SPDX-License-Identifier: Apache-2.0 */
/* What fields.h declares. */
#include "fields.h"

#include "dense.h"

/* Copies the part's channels of `pixels` neighbouring pixels of x, which points at the first of them. */
ALWAYS_INLINE void fetch_pixels(const int8_t *x, uint32_t pixels, uint32_t c, const struct part *part, int8_t *bytes)
{
    if (!part->order) {
        copy_bytes(bytes, x, pixels * c);
        return;
    }
    for (; pixels; pixels--, x += c) {
        const uint16_t *order = part->order, *end = order + part->count;
        do {
            *bytes++ = x[*order++];
        } while (order != end);
    }
}

void fetch_field(const struct conv2d *p, const int8_t *x, struct corner at, const struct part *part, int8_t *bytes)
{
    int32_t first_y = at.y < 0 ? -at.y : 0, last_y = p->h_in - at.y < p->kh ? p->h_in - at.y : p->kh;
    int32_t first_x = at.x < 0 ? -at.x : 0, last_x = p->w_in - at.x < p->kw ? p->w_in - at.x : p->kw;
    uint32_t row = p->kw * part->count;
    if (last_y - first_y < p->kh || last_x - first_x < p->kw) {
        fill_bytes(bytes, p->x_zero, p->kh * row);
    }
    if (last_x > first_x) {
        bytes += (uint32_t)first_y * row + (uint32_t)first_x * part->count;
        x += ((at.y + first_y) * p->w_in + at.x + first_x) * p->c_in;
        for (int32_t y = first_y; y < last_y; y++, bytes += row, x += p->w_in * p->c_in) {
            fetch_pixels(x, (uint32_t)(last_x - first_x), p->c_in, part, bytes);
        }
    }
}

/* How many of n outputs, from the one at the corner on, lie in its row and see no padding up to the first that does. */
static uint32_t count_inside(const struct conv2d *p, struct corner at, uint32_t n)
{
    int32_t room = p->w_in - p->kw - at.x, row = p->w_out * p->stride_w - p->pad_w - 1 - at.x;
    if (at.y < 0 || at.x < 0 || at.y + p->kh > p->h_in || room < 0) {
        return 0;
    }
    uint32_t most = (uint32_t)(room < row ? room : row) / p->stride_w + 1u;
    return most < n ? most : n;
}

#if KERNELS_MVE
/* conv2d_mve.S: to[pixels][rows][n] = rows of n bytes, 16 at most, `step` bytes apart; `next` bytes to the next pixel's.
 * None of them is 0. */
void copy_fields(int8_t *to, const int8_t *from, uint32_t n, uint32_t rows, uint32_t step, uint32_t pixels,
                 uint32_t next);
#endif

/* fetch_fields() of n such outputs and all channels. */
static void fetch_inside(const struct conv2d *p, const int8_t *x, struct corner at, uint32_t n, int8_t *bytes)
{
    uint32_t rows = p->kh, row = (uint32_t)p->kw * p->c_in, step = (uint32_t)p->w_in * p->c_in;
    uint32_t next = (uint32_t)p->stride_w * p->c_in;
#if KERNELS_MVE
    if (row <= 16) {
        copy_fields(bytes, x + (at.y * p->w_in + at.x) * p->c_in, row, rows, step, n, next);
        return;
    }
#endif
    for (x += (at.y * p->w_in + at.x) * p->c_in; n; n--, x += next) {
        const int8_t *from = x;
        for (uint32_t y = rows; y; y--, bytes += row, from += step) {
            copy_bytes(bytes, from, row);
        }
    }
}

void fetch_fields(const struct conv2d *p, const int8_t *x, struct corner at, uint32_t n, const struct part *part,
                  int8_t *bytes)
{
    for (uint32_t some; n; n -= some, next_corner(p, &at, some), bytes += some * part->k) {
        some = part->order ? 0 : count_inside(p, at, n);
        if (some) {
            fetch_inside(p, x, at, some, bytes);
        } else {
            fetch_field(p, x, at, part, bytes);
            some = 1;
        }
    }
}
