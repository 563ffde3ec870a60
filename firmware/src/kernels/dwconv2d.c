/* Depthwise convolution: forward, gradient to the input, gradient to the weights with the update folded in.
 * Contract: kernels/conv2d.h.
 *
 * One channel at a time goes through a ring of kh image rows, widened to int16, zero point taken out, padded with
 * zeros: the channel is read once and no padded plane exists. The gradient to the input is the same sum over the
 * errors with flipped taps; with a stride, zeros stand between the errors.
 */
#include "kernels/conv2d.h"

#include "channel.h"
#include "chip.h"
#include "update.h"

/* ---- rings ------------------------------------------------------------------------------------------------------ */

/* A channel of an image as windows see it: place i of window row r is column (i - pad_w) / space_w of image row
 * (r - pad_h) / space_h, or zero where there is none. */
struct plane {
    const int8_t *at; /* the channel's value of pixel 0 */
    uint32_t c;
    int32_t h, w, zero, pad_h, pad_w, space_h, space_w;
    uint32_t places; /* of a window row, even */
};

/* The last kh window rows of a plane; row r lies in slot r % kh. */
struct ring {
    int16_t *rows; /* [kh][places] */
    uint32_t kh, kw;
    uint32_t filled; /* rows below this one have been there */
};

/* int16 values of a row of taps, such that they can be read in pairs. */
ALWAYS_INLINE uint32_t tap_places(uint32_t kw)
{
    return (kw + 1) & ~1u;
}

/* Places of a window row for n outputs: one more than they see, because taps are read in pairs. */
static uint32_t row_places(uint32_t n, uint32_t stride, uint32_t kw)
{
    return panel_size((n - 1) * stride + kw + 1);
}

/* Padding is written once, by clear_ring; a row of the image overwrites only the places that hold its pixels, a row
 * outside sets those to zero. */
static void fill_row(const struct plane *plane, uint32_t r, int16_t *row)
{
    int32_t y = (int32_t)r - plane->pad_h, i = plane->pad_w, step = plane->space_w, inside = y >= 0;
    if (plane->space_h > 1) {
        inside = inside && y % plane->space_h == 0;
        y /= plane->space_h;
    }
    if (!inside || y >= plane->h) {
        memset(row, 0, plane->places * sizeof *row);
        return;
    }
    uint32_t c = plane->c;
    const int8_t *at = plane->at + (uint32_t)(y * plane->w) * c;
    int32_t zero = plane->zero, places = (int32_t)plane->places, last = i + plane->w * step;
    for (; i < 0; i += step) {
        at += c;
    }
    for (last = last < places ? last : places; i < last; i += step, at += c) {
        row[i] = (int16_t)(*at - zero);
    }
}

/* An empty ring. */
static struct ring clear_ring(const struct conv2d *p, const struct plane *plane, int16_t *rows)
{
    memset(rows, 0, p->kh * plane->places * sizeof *rows);
    return (struct ring){.rows = rows, .kh = p->kh, .kw = p->kw};
}

/* Makes window rows top .. top + kh - 1 present; top never goes back. */
static void advance(struct ring *ring, const struct plane *plane, uint32_t top)
{
    uint32_t r = ring->filled > top ? ring->filled : top;
    for (; r < top + ring->kh; r++) {
        fill_row(plane, r, ring->rows + r % ring->kh * plane->places);
    }
    ring->filled = r;
}

/* taps[kh][tap_places(kw)] of one channel, forward or flipped, zero behind the last of a row. */
static void pack_taps(const int8_t *w, uint32_t kh, uint32_t kw, int flip, int16_t *taps)
{
    for (uint32_t y = 0; y < kh; y++) {
        for (uint32_t x = 0; x < tap_places(kw); x++) {
            uint32_t i = y * kw + x;
            *taps++ = x < kw ? w[flip ? kh * kw - 1 - i : i] : 0;
        }
    }
}

/* One row of taps over one row of values. */
ALWAYS_INLINE int32_t dot_taps(const int16_t *row, const int16_t *taps, uint32_t kw, int32_t acc)
{
#if KERNELS_DSP
#pragma GCC unroll 4
    for (uint32_t i = 0; i < tap_places(kw); i += 2) {
        acc = __smlad((int32_t)load_u32(row + i), (int32_t)load_u32(taps + i), acc);
    }
#else
#pragma GCC unroll 7
    for (uint32_t i = 0; i < kw; i++) {
        acc += row[i] * taps[i];
    }
#endif
    return acc;
}

/* sums[i] = window at column i * stride of the kh rows from `top` on. */
ALWAYS_INLINE void sum_row_body(const int16_t *rows, uint32_t places, uint32_t top, const int16_t *taps, uint32_t n,
                                uint32_t stride, int32_t *sums, uint32_t kh, uint32_t kw)
{
    uint32_t slot = top % kh;
    for (uint32_t i = 0; i < n; i++) {
        int32_t acc = 0;
#pragma GCC unroll 7
        for (uint32_t y = 0; y < kh; y++) {
            uint32_t at = slot + y < kh ? slot + y : slot + y - kh;
            acc = dot_taps(rows + at * places + i * stride, taps + y * tap_places(kw), kw, acc);
        }
        sums[i] = acc;
    }
}

static void sum_row(const struct ring *ring, const struct plane *plane, uint32_t top, const int16_t *taps, uint32_t n,
                    uint32_t stride, int32_t *sums)
{
    const int16_t *rows = ring->rows;
    uint32_t places = plane->places;
    if (ring->kh == 3 && ring->kw == 3) {
        sum_row_body(rows, places, top, taps, n, stride, sums, 3, 3);
    } else if (ring->kh == 5 && ring->kw == 5) {
        sum_row_body(rows, places, top, taps, n, stride, sums, 5, 5);
    } else if (ring->kh == 7 && ring->kw == 7) {
        sum_row_body(rows, places, top, taps, n, stride, sums, 7, 7);
    } else {
        sum_row_body(rows, places, top, taps, n, stride, sums, ring->kh, ring->kw);
    }
}

/* Row i of the split weights: its taps and the channel it is for. */
static const int8_t *weight_row(const struct conv2d *p, const struct split_weights *w, uint32_t i, uint32_t *channel)
{
    uint32_t frozen = (uint32_t)p->c_in - w->c_trained, taps = (uint32_t)p->kh * p->kw;
    *channel = w->order ? w->order[i] : i;
    return i < frozen ? w->frozen + i * taps : w->trained + (i - frozen) * taps;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

static struct plane input_plane(const struct conv2d *p, const int8_t *at, uint32_t c)
{
    struct plane plane = {.at = at, .c = c, .h = p->h_in, .w = p->w_in, .zero = p->x_zero};
    plane.pad_h = p->pad_h;
    plane.pad_w = p->pad_w;
    plane.space_h = plane.space_w = 1;
    plane.places = row_places(p->w_out, p->stride_w, p->kw);
    return plane;
}

static uint32_t taps_and_ring(const struct conv2d *p, uint32_t places)
{
    return p->kh * (tap_places(p->kw) + places) * (uint32_t)sizeof(int16_t);
}

uint32_t dwconv2d_fwd_scratch(const struct conv2d *p)
{
    return 4u * p->w_out + taps_and_ring(p, row_places(p->w_out, p->stride_w, p->kw));
}

/* One row of one channel: y of its first pixel. With a mask, of which the channel's bit is still 0, that is set
 * where nothing saturates; `masked` is a literal. */
ALWAYS_INLINE void put_row(const struct conv2d *p, const int32_t *sums, int32_t b, uint32_t ch, int8_t *y,
                           uint8_t *mask, int masked)
{
    uint32_t c = p->c_out, stride = mask_stride(c), bit = 1u << (ch & 7u);
    int32_t zero = p->y_zero;
    float m = p->m[ch];
    for (const int32_t *end = sums + p->w_out; sums != end; sums++, y += c) {
        int32_t v = requantize_wide(*sums + b, m) + zero, q = saturate8(v);
        *y = (int8_t)q;
        if (masked) {
            *mask = (uint8_t)(*mask | (v == q ? bit : 0u));
            mask += stride;
        }
    }
}

void dwconv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b,
                     int8_t *y, uint8_t *mask, void *scratch)
{
    int32_t *sums = scratch;
    int16_t *taps = (int16_t *)(void *)(sums + p->w_out);
    int16_t *rows = taps + p->kh * tap_places(p->kw);
    uint32_t stride = mask_stride(p->c_out);
    if (mask) {
        memset(mask, 0, (uint32_t)p->h_out * p->w_out * stride);
    }
    for (uint32_t i = 0; i < p->c_in; i++) {
        uint32_t ch;
        pack_taps(weight_row(p, w, i, &ch), p->kh, p->kw, 0, taps);
        struct plane plane = input_plane(p, x + ch, p->c_in);
        struct ring ring = clear_ring(p, &plane, rows);
        for (uint32_t oy = 0; oy < p->h_out; oy++) {
            uint32_t top = oy * p->stride_h, pixel = oy * p->w_out;
            advance(&ring, &plane, top);
            sum_row(&ring, &plane, top, taps, p->w_out, p->stride_w, sums);
            if (mask) {
                put_row(p, sums, b[ch], ch, y + pixel * p->c_out + ch, mask + pixel * stride + (ch >> 3), 1);
            } else {
                put_row(p, sums, b[ch], ch, y + pixel * p->c_out + ch, NULL, 0);
            }
        }
    }
}

/* ---- gradient to the input -------------------------------------------------------------------------------------- */

/* Pixels whose sums are kept between the search for the peak and the rounding; a larger image is computed twice, row
 * by row. */
enum { PLANE = 1024 };

static uint32_t input_pixels(const struct conv2d *p)
{
    return (uint32_t)p->h_in * p->w_in;
}

static uint32_t kept_pixels(const struct conv2d *p)
{
    return input_pixels(p) <= PLANE ? input_pixels(p) : p->w_in;
}

uint32_t dwconv2d_bwd_x_scratch(const struct conv2d *p)
{
    return 4 * kept_pixels(p) + taps_and_ring(p, row_places(p->w_in, 1, p->kw));
}

static struct plane error_plane(const struct conv2d *p, const int8_t *at)
{
    struct plane plane = {.at = at, .c = p->c_out, .h = p->h_out, .w = p->w_out};
    plane.pad_h = p->kh - 1 - p->pad_h;
    plane.pad_w = p->kw - 1 - p->pad_w;
    plane.space_h = p->stride_h;
    plane.space_w = p->stride_w;
    plane.places = row_places(p->w_in, 1, p->kw);
    return plane;
}

/* Sums of the whole channel, row by row; the peak of those that pass. */
static int32_t sum_plane(const struct conv2d *p, const struct plane *plane, int16_t *rows, const int16_t *taps,
                         const struct channel *ch, int32_t *sums)
{
    struct ring ring = clear_ring(p, plane, rows);
    uint32_t step = kept_pixels(p) == input_pixels(p) ? p->w_in : 0;
    int32_t peak = 0;
    for (uint32_t y = 0; y < p->h_in; y++, sums += step) {
        advance(&ring, plane, y);
        sum_row(&ring, plane, y, taps, p->w_in, 1, sums);
        peak = channel_peak(ch, y * p->w_in, p->w_in, sums, 1, peak);
    }
    return peak;
}

static void put_plane(const struct conv2d *p, const struct plane *plane, int16_t *rows, const int16_t *taps,
                      const struct channel *ch, int32_t *sums, float gain)
{
    if (kept_pixels(p) == input_pixels(p)) {
        channel_write(ch, 0, input_pixels(p), sums, 1, gain);
        return;
    }
    struct ring ring = clear_ring(p, plane, rows);
    for (uint32_t y = 0; y < p->h_in; y++) {
        advance(&ring, plane, y);
        sum_row(&ring, plane, y, taps, p->w_in, 1, sums);
        channel_write(ch, y * p->w_in, p->w_in, sums, 1, gain);
    }
}

void dwconv2d_bwd_x_s8(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                       const struct clamp *clamp, const struct error_s8 *ex, void *scratch)
{
    int32_t *sums = scratch;
    int16_t *taps = (int16_t *)(void *)(sums + kept_pixels(p));
    int16_t *rows = taps + p->kh * tap_places(p->kw);
    for (uint32_t i = 0; i < p->c_in; i++) {
        uint32_t at;
        pack_taps(weight_row(p, w, i, &at), p->kh, p->kw, 1, taps);
        struct plane plane = error_plane(p, ey->q + at);
        struct channel ch = channel_of(ex, clamp, p->c_in, at);
        int32_t peak = sum_plane(p, &plane, rows, taps, &ch, sums);
        float gain = channel_gain((float)peak, channel_unit(clamp, at, ey->scale[at]), &ex->scale[at]);
        put_plane(p, &plane, rows, taps, &ch, sums, gain);
    }
}

/* ---- gradient to the weights ------------------------------------------------------------------------------------ */

uint32_t dwconv2d_bwd_w_scratch(const struct conv2d *p, uint16_t c_trained)
{
    uint32_t sums = 4u * p->kh * p->kw, errors = panel_size(p->w_out) * (uint32_t)sizeof(int16_t);
    uint32_t ring = p->kh * row_places(p->w_out, p->stride_w, p->kw) * (uint32_t)sizeof(int16_t);
    return c_trained ? sums + errors + ring : 0;
}

/* sums[x] += errors of a row against what tap x of a row of taps saw; `taps` is a literal. Errors are zero up to the
 * even place. */
ALWAYS_INLINE void correlate_body(const int16_t *e, const int16_t *row, uint32_t n, uint32_t stride, int32_t *sums,
                                  uint32_t taps)
{
    int32_t acc[7] = {0};
    uint32_t i = 0;
#if KERNELS_DSP
    for (; stride == 1 && i < n; i += 2) {
        int32_t pair = (int32_t)load_u32(e + i);
#pragma GCC unroll 7
        for (uint32_t x = 0; x < taps; x++) {
            acc[x] = __smlad(pair, (int32_t)load_u32(row + i + x), acc[x]);
        }
    }
#endif
    for (; i < n; i++) {
#pragma GCC unroll 7
        for (uint32_t x = 0; x < taps; x++) {
            acc[x] += e[i] * row[i * stride + x];
        }
    }
#pragma GCC unroll 7
    for (uint32_t x = 0; x < taps; x++) {
        sums[x] += acc[x];
    }
}

static void correlate(const int16_t *e, const int16_t *row, uint32_t n, uint32_t stride, int32_t *sums, uint32_t kw)
{
    if (kw == 3) {
        correlate_body(e, row, n, stride, sums, 3);
    } else if (kw == 5) {
        correlate_body(e, row, n, stride, sums, 5);
    } else if (kw == 7) {
        correlate_body(e, row, n, stride, sums, 7);
    } else {
        for (uint32_t x = 0; x < kw; x++) {
            correlate_body(e, row + x, n, stride, sums + x, 1);
        }
    }
}

/* Sums of all taps of one channel. scratch behind the sums: a row of errors, then the ring. */
static void correlate_channel(const struct conv2d *p, const int8_t *e, const struct plane *plane, int32_t *sums)
{
    uint32_t taps = (uint32_t)p->kh * p->kw;
    int16_t *errors = (int16_t *)(void *)(sums + taps);
    struct ring ring = clear_ring(p, plane, errors + panel_size(p->w_out));
    memset(sums, 0, taps * sizeof *sums);
    errors[panel_size(p->w_out) - 1] = 0;
    for (uint32_t oy = 0; oy < p->h_out; oy++) {
        uint32_t top = oy * p->stride_h;
        advance(&ring, plane, top);
        for (uint32_t ox = 0; ox < p->w_out; ox++, e += p->c_out) {
            errors[ox] = *e;
        }
        for (uint32_t y = 0; y < p->kh; y++) {
            const int16_t *row = ring.rows + (top + y) % p->kh * plane->places;
            correlate(errors, row, p->w_out, p->stride_w, sums + y * p->kw, p->kw);
        }
    }
}

void dwconv2d_bwd_w_s8(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x,
                       const uint16_t *channels, uint16_t c_trained, const struct trained_weights *w,
                       const struct sgd *sgd, void *scratch)
{
    int32_t *sums = scratch;
    uint32_t key = random_key(sgd->seed, sgd->step, w->id), taps = (uint32_t)p->kh * p->kw;
    for (uint32_t i = 0; i < c_trained; i++) {
        uint32_t ch = channels ? channels[i] : i;
        struct plane plane = input_plane(p, x->x + (x->index ? x->index[i] : i), x->c_x);
        correlate_channel(p, ey->q + ch, &plane, sums);
        float factor = sgd->lr_weight * w->qas[ch] * ey->scale[ch];
        struct steps steps = {.sums = sums, .stride = 1, .shift = 0, .factor = factor};
        update_weights(w, i * taps, taps, &steps, key);
    }
}
