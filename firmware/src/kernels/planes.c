/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking and summing of planes. Contract: planes.h. */
#include "planes.h"

#if defined(__AVX2__)
#include "planes_avx2.h"
#endif

/* ---- views and tiles -------------------------------------------------------------------------------------------- */

/* Which of the functions of run_windows() could sum it, or 0: 1 to 12. wide: rows of WIDE_PLACES. */
static uint32_t way_of(const struct view *v, int wide)
{
    int square = v->kh == v->kw && (v->kw == 3 || v->kw == 5 || v->kw == 7);
    int one_stride = v->stride_h == v->stride_w || v->h == 1;
    int fast = square && one_stride && v->stride_w <= 2;
    return fast ? 2 * (v->kw - 3) + 2 * (v->stride_w - 1) + (wide ? 1 : 0) + 1 : 0;
}

/* The same where it is linked. */
static uint32_t fast_way(const struct view *v, int wide)
{
    uint32_t way = KERNELS_DSP ? way_of(v, wide) : 0;
    return (MICROTRAIN_WINDOWS << 1) >> way & 1 ? way : 0;
}

uint32_t ways_of(const struct view *v)
{
    struct view row = *v;
    row.h = 1;
    uint32_t narrow = way_of(&row, 0), wide = v->w * v->stride_w > TILE_WIDTH;
    return narrow ? (1u + 2u * wide) << (narrow - 1) : 0;
}

/* A low image makes low tiles: wide ones take no more room than narrow high ones. */
static int is_wide(const struct view *v)
{
    return v->w * v->stride_w > TILE_WIDTH && v->h * v->stride_h <= TILE_HEIGHT / 2;
}

/* Sizes that follow from the rest. Summed four at a time, windows of a tile must not leave the row. */
static void lay_out(struct view *v)
{
    v->fast = fast_way(v, is_wide(v));
    uint32_t usual = is_wide(v) ? WIDE_PLACES : NARROW_PLACES;
    v->shift = v->fast && v->kw != 5 ? 1 : 0;
    uint32_t least = (v->shift + v->kw + 3 * v->stride_w + 1) & ~1u;
    v->places = least > usual ? least : usual;
    uint32_t fit = ((v->places - v->shift - v->kw) / v->stride_w + 1) & ~3u;
    uint32_t most = is_wide(v) ? 2 * TILE_WIDTH : TILE_WIDTH;
    v->tile_w = fit < most ? fit : most;
    v->tile_h = v->stride_h > 1 ? TILE_HEIGHT / 2 : (uint32_t)TILE_HEIGHT;
    v->tile_h = v->h < v->tile_h ? v->h : v->tile_h;
    v->plane = ((v->tile_h - 1) * v->stride_h + v->kh) * v->places;
}

void view_of_input(const struct conv2d *p, const int8_t *x, uint32_t c, struct view *v)
{
    v->image = x;
    v->image_h = p->h_in;
    v->image_w = p->w_in;
    v->zero = p->x_zero;
    v->pad_h = p->pad_h;
    v->pad_w = p->pad_w;
    v->space_h = v->space_w = 1;
    v->c = c;
    v->kh = p->kh;
    v->kw = p->kw;
    v->stride_h = p->stride_h;
    v->stride_w = p->stride_w;
    v->h = p->h_out;
    v->w = p->w_out;
    v->flip = 0;
    lay_out(v);
}

void view_of_errors(const struct conv2d *p, const int8_t *ey, struct view *v)
{
    v->image = ey;
    v->image_h = p->h_out;
    v->image_w = p->w_out;
    v->zero = 0;
    v->pad_h = p->kh - 1 - p->pad_h;
    v->pad_w = p->kw - 1 - p->pad_w;
    v->space_h = p->stride_h;
    v->space_w = p->stride_w;
    v->c = p->c_out;
    v->kh = p->kh;
    v->kw = p->kw;
    v->stride_h = v->stride_w = 1;
    v->h = p->h_in;
    v->w = p->w_in;
    v->flip = 1;
    lay_out(v);
}

#if KERNELS_DSP

int begin_phases(struct view *errors, void *taps, struct phases *at)
{
    struct view *e = errors;
    int seven = e->kh == 7 && e->kw == 7 && e->space_h == 2 && e->space_w == 2;
    int even = (e->pad_h & 1) && (e->pad_w & 1) && e->h % 2 == 0 && e->w % 8 == 0;
    if (!seven || !even || e->h > 2 * TILE_HEIGHT || e->w > 2 * TILE_WIDTH) {
        return 0;
    }
    e->pad_h = (e->pad_h - 1) / 2;
    e->pad_w = (e->pad_w - 1) / 2;
    e->space_h = e->space_w = 1;
    e->kh = e->kw = 4;
    e->h /= 2;
    e->w /= 2;
    lay_out(e);
    at->rows = e->h;
    at->fours = e->w / 4;
    at->skip = 2 * (e->places - e->w);
    at->taps = taps;
    return 1;
}

#endif

uint32_t planes_bytes(const struct view *v, uint32_t lanes)
{
    return lanes * v->plane * (uint32_t)sizeof(int16_t);
}

uint32_t taps_bytes(const struct view *v)
{
    return v->kh * (v->kw | 1u) * (uint32_t)sizeof(uint32_t);
}

uint32_t tile_sums_bytes(const struct view *v)
{
    uint32_t w = round_up4(v->w);
    return v->tile_h * (w < v->tile_w ? w : v->tile_w) * (uint32_t)sizeof(int32_t);
}

/* origin: what place 0 is in the coordinates of the image, zeros between its pixels counted. */
#if !KERNELS_MVE
static
#endif
    struct overlap
    overlap_of(int32_t origin, int32_t places, int32_t size, int32_t space)
{
    struct overlap o = {.first = origin > 0 ? (origin + space - 1) / space : 0};
    o.at = o.first * space - origin;
    int32_t seen = o.at < places ? (places - o.at + space - 1) / space : 0, left = size - o.first;
    o.n = left < 0 ? 0 : seen < left ? seen : left;
    return o;
}

/* The tile at (y, x), as large as fits. */
static void tile_at(const struct view *v, uint32_t y, uint32_t x, struct tile *tile)
{
    tile->y = y;
    tile->x = x;
    tile->h = v->h - y < v->tile_h ? v->h - y : v->tile_h;
    tile->w = v->w - x < v->tile_w ? v->w - x : v->tile_w;
    tile->row = round_up4(tile->w);
    if (tile->w == v->w && tile->row == tile->w) {
        tile->runs = (struct runs){.count = 1, .length = tile->w * tile->h};
    } else {
        tile->runs = (struct runs){tile->h, 4 * (tile->row - tile->w), (v->w - tile->w) * v->c, tile->w};
    }
    int32_t top = (int32_t)(y * v->stride_h) - v->pad_h, left = (int32_t)(x * v->stride_w) - v->pad_w;
    int32_t height = (int32_t)((tile->h - 1) * v->stride_h + v->kh);
    tile->rows = overlap_of(top, height, v->image_h, v->space_h);
    int32_t width = (int32_t)(v->shift + (tile->w - 1) * v->stride_w + v->kw);
    tile->columns = overlap_of(left - (int32_t)v->shift, width, v->image_w, v->space_w);
}

void first_tile(const struct view *v, struct tile *tile)
{
    tile_at(v, 0, 0, tile);
}

void next_tile(const struct view *v, struct tile *tile)
{
    uint32_t x = tile->x + tile->w, y = tile->y;
    if (x == v->w) {
        x = 0;
        y += tile->h;
    }
    if (y < v->h) {
        tile_at(v, y, x, tile);
    } else {
        tile->h = 0;
    }
}

/* ---- unpacking -------------------------------------------------------------------------------------------------- */

void clear_planes(const struct view *v, int16_t *planes, uint32_t lanes)
{
    fill_bytes(planes, 0, planes_bytes(v, lanes));
}

/* One channel, place by place. */
static void fill_plane(const struct view *v, const struct tile *tile, const int8_t *image, int16_t *plane)
{
    struct overlap rows = tile->rows, columns = tile->columns;
    int32_t zero = v->zero, places = (int32_t)v->places;
    uint32_t c = v->c;
    for (int32_t i = 0; i < rows.n; i++) {
        const int8_t *from = image + (uint32_t)((rows.first + i) * v->image_w + columns.first) * c;
        int16_t *to = plane + (rows.at + i * v->space_h) * places + columns.at;
        for (int32_t j = 0; j < columns.n; j++, from += c, to += v->space_w) {
            *to = (int16_t)(*from - zero);
        }
    }
}

#if KERNELS_DSP

void strip_of(const struct view *v, const struct tile *tile, int16_t *planes, struct strip *strip)
{
    struct overlap rows = tile->rows, columns = tile->columns;
    strip->c = v->c;
    strip->plane_bytes = planes_bytes(v, 1);
    strip->x = v->image + (uint32_t)(rows.first * v->image_w + columns.first) * v->c;
    strip->plane = planes + rows.at * (int32_t)v->places + columns.at;
    strip->shift = halves_of(-v->zero);
    strip->columns = (uint32_t)columns.n;
    strip->rows = v->space_h == 1 && v->space_w == 1 && columns.n ? (uint32_t)rows.n : 0;
    strip->x_skip = (uint32_t)(v->image_w - columns.n) * v->c;
    strip->place_skip = (v->places - strip->columns) * (uint32_t)sizeof(int16_t);
    strip->odd = (uint32_t)columns.at & 1u;
}

#endif

void fill_planes(const struct view *v, const struct tile *tile, const uint16_t *channels, uint32_t lanes,
                 int16_t *planes)
{
    if (tile->rows.n == 0 || tile->columns.n == 0) {
        return;
    }
    for (uint32_t lane = 0; lane < lanes; lane++) {
        fill_plane(v, tile, v->image + channels[lane], planes + lane * v->plane);
    }
}

/* ---- summing ---------------------------------------------------------------------------------------------------- */

#if KERNELS_DSP

void windows_of(const struct view *v, const struct tile *tile, void *taps, struct windows *at)
{
    at->row_bytes = 2 * tile->row * v->stride_w;
    at->rows = tile->h;
    at->skip = 2 * v->places * v->stride_w - at->row_bytes;
    at->word = 0;
    at->taps = taps;
    at->flip = v->flip != 0;
    at->fast = v->fast;
}

#endif

/* Adds the taps' products to the sums of windows beside one another, `stride` places apart. */
ALWAYS_INLINE void add_taps_to(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums,
                               uint32_t n, uint32_t stride)
{
    for (uint32_t ky = 0; ky < v->kh; ky++, plane += v->places) {
        for (uint32_t kx = 0; kx < v->kw; kx++) {
            int32_t tap = *taps++;
            for (uint32_t x = 0; x < n; x++) {
                sums[x] += plane[kx + x * stride] * tap;
            }
        }
    }
}

#if !KERNELS_DSP

/* The same of n windows in registers; n and stride are literals: vector code. */
ALWAYS_INLINE void add_taps_at_once(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums,
                                    uint32_t n, uint32_t stride)
{
    int32_t local[TILE_WIDTH];
    memcpy(local, sums, n * sizeof(int32_t));
    add_taps_to(v, plane, taps, local, n, stride);
    memcpy(sums, local, n * sizeof(int32_t));
}

static int add_few_taps(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums, uint32_t n)
{
    if (v->stride_w == 1 && n == 16) {
        add_taps_at_once(v, plane, taps, sums, 16, 1);
    } else if (v->stride_w == 1 && n == 8) {
        add_taps_at_once(v, plane, taps, sums, 8, 1);
    } else if (v->stride_w == 1 && n == 4) {
        add_taps_at_once(v, plane, taps, sums, 4, 1);
    } else if (v->stride_w == 2 && n == 4) {
        add_taps_at_once(v, plane, taps, sums, 4, 2);
    } else {
        return 0;
    }
    return 1;
}

#endif

/* A row of windows. */
ALWAYS_INLINE void add_taps(const struct view *v, const int16_t *plane, const int32_t *taps, int32_t *sums, uint32_t n)
{
#if !KERNELS_DSP
#if defined(__AVX2__)
    if (v->stride_w == 1) {
        uint32_t done = add_windows_avx2(v, plane, taps, sums, n);
        plane += done;
        sums += done;
        n -= done;
    }
    if (n == 0) {
        return;
    }
#endif
    if (add_few_taps(v, plane, taps, sums, n)) {
        return;
    }
#endif
    add_taps_to(v, plane, taps, sums, n, v->stride_w);
}

void sum_windows(const struct view *v, const struct tile *tile, const int16_t *plane, const int8_t *w, int32_t *taps,
                 int32_t bias, int32_t *sums)
{
    uint32_t n = v->kh * v->kw;
    for (uint32_t i = 0; i < n; i++) {
        taps[i] = v->flip ? w[n - 1 - i] : w[i];
    }
    for (uint32_t i = 0; i < tile->h * tile->row; i++) {
        sums[i] = bias;
    }
    plane += v->shift;
    for (uint32_t y = 0; y < tile->h; y++, plane += v->stride_h * v->places, sums += tile->row) {
        add_taps(v, plane, taps, sums, tile->w);
    }
}

#if KERNELS_MVE
#include "planes_mve.h"
#endif
