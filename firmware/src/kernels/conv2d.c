/* Dense convolution: forward and gradient to the input. Contract: kernels/conv2d.h. */
#include "kernels/conv2d.h"

#include "channel.h"
#include "dot.h"

/* A 1x1 kernel that reads pixel i for output i. */
static int is_pointwise(const struct conv2d *p)
{
    return p->kh == 1 && p->kw == 1 && p->stride_h == 1 && p->stride_w == 1 && p->pad_h == 0 && p->pad_w == 0 &&
           p->h_in == p->h_out && p->w_in == p->w_out;
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

/* One of the two weight matrices and the input channels it is for. */
struct part {
    const int8_t *w;
    const uint16_t *order; /* NULL: all channels in natural order */
    uint32_t count;        /* channels */
    uint32_t k;            /* weights an output channel */
};

static struct part part_of(const struct conv2d *p, const struct split_weights *w, int trained)
{
    uint32_t frozen = (uint32_t)p->c_in - w->c_trained;
    struct part part = {.w = w->frozen, .order = w->order, .count = frozen};
    if (trained) {
        part.w = w->trained;
        part.order = w->order ? w->order + frozen : NULL;
        part.count = w->c_trained;
    }
    part.k = part.count * p->kh * p->kw;
    return part;
}

/* Copies `count` channels of `pixels` neighbouring pixels of x, which point at the first of them. */
ALWAYS_INLINE void fetch_pixels(const int8_t *x, uint32_t pixels, uint32_t c, const struct part *part, int8_t *bytes)
{
    if (!part->order) {
        memcpy(bytes, x, pixels * c);
        return;
    }
    for (; pixels; pixels--, x += c) {
        for (uint32_t i = 0; i < part->count; i++) {
            *bytes++ = x[part->order[i]];
        }
    }
}

/* bytes[kh][kw][count] = what output `pixel` sees of x, padding as x_zero. */
static void fetch_field(const struct conv2d *p, const int8_t *x, uint32_t pixel, const struct part *part, int8_t *bytes)
{
    int32_t top = (int32_t)(pixel / p->w_out) * p->stride_h - p->pad_h;
    int32_t left = (int32_t)(pixel % p->w_out) * p->stride_w - p->pad_w;
    int32_t begin = left < 0 ? -left : 0, end = p->w_in - left;
    end = end > p->kw ? p->kw : end;
    for (int32_t y = top; y < top + p->kh; y++, bytes += p->kw * part->count) {
        if (y < 0 || y >= p->h_in || end <= begin) {
            memset(bytes, p->x_zero, p->kw * part->count);
            continue;
        }
        uint32_t first = (uint32_t)begin * part->count, last = (uint32_t)end * part->count;
        memset(bytes, p->x_zero, first);
        fetch_pixels(x + (y * p->w_in + left + begin) * p->c_in, (uint32_t)(end - begin), p->c_in, part, bytes + first);
        memset(bytes + last, p->x_zero, p->kw * part->count - last);
    }
}

/* Panel of one output pixel for one weight matrix. */
static void pack_pixel(const struct conv2d *p, const int8_t *x, uint32_t pixel, const struct part *part, int16_t *panel)
{
    if (part->k == 0) {
        return;
    }
    const int8_t *bytes = x + pixel * p->c_in;
    if (part->order || !is_pointwise(p)) {
        int8_t *end = (int8_t *)panel + part->k;
        fetch_field(p, x, pixel, part, end);
        bytes = end;
    }
    panel_expand(panel, bytes, p->x_zero, part->k);
}

/* Outputs that are summed before they are requantized: one byte of the mask. */
enum { GROUP = 8 };

/* Two pixels at a time. One alone stands in both places. */
struct pair {
    const int16_t *panel[2]; /* frozen part, then trained part */
    int8_t *y[2];
    uint8_t *mask[2]; /* NULL: none */
};

/* Requantizes n sums, two apart, of outputs o on. Returns their mask bits. */
ALWAYS_INLINE uint32_t put_outputs(const int32_t *sums, const float *m, int32_t zero, uint32_t n, int8_t *y)
{
    uint32_t bits = 0;
    for (uint32_t j = 0, bit = 1; j < n; j++, bit <<= 1) {
        int32_t v = requantize_wide(sums[2 * j], m[j]) + zero, q = saturate8(v);
        y[j] = (int8_t)q;
        bits |= v == q ? bit : 0;
    }
    return bits;
}

/* Outputs o .. o + n of a pair of pixels; o is a multiple of GROUP. */
static void put_group(const struct conv2d *p, const struct part part[2], const int32_t *b, const struct pair *at,
                      uint32_t o, uint32_t n)
{
    int32_t sums[2 * GROUP];
    for (uint32_t j = 0; j < n; j++) {
        sums[2 * j] = sums[2 * j + 1] = b[o + j];
    }
    uint32_t offset = 0;
    for (int i = 0; i < 2; i++) {
        if (part[i].k) {
            const int8_t *w = part[i].w + o * part[i].k;
            dot_rows(at->panel[0] + offset, at->panel[1] + offset, w, part[i].k, n, sums);
        }
        offset += panel_size(part[i].k);
    }
    for (uint32_t j = 0; j < 2; j++) {
        uint32_t bits = put_outputs(sums + j, p->m + o, p->y_zero, n, at->y[j] + o);
        if (at->mask[j]) {
            at->mask[j][o / GROUP] = (uint8_t)bits;
        }
    }
}

static uint32_t pixel_panel(const struct conv2d *p)
{
    /* two parts, each rounded up: one place more than the sum at most */
    return panel_size((uint32_t)p->kh * p->kw * p->c_in) + 2;
}

uint32_t conv2d_fwd_scratch(const struct conv2d *p)
{
    return 2 * pixel_panel(p) * (uint32_t)sizeof(int16_t);
}

void conv2d_fwd_s8(const struct conv2d *p, const int8_t *x, const struct split_weights *w, const int32_t *b, int8_t *y,
                   uint8_t *mask, void *scratch)
{
    const struct part part[2] = {part_of(p, w, 0), part_of(p, w, 1)};
    uint32_t second = panel_size(part[0].k), pixels = (uint32_t)p->h_out * p->w_out, stride = mask_stride(p->c_out);
    for (uint32_t i = 0; i < pixels; i += 2) {
        struct pair at;
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t pixel = i + j < pixels ? i + j : i;
            int16_t *panel = (int16_t *)scratch + (pixel - i) * pixel_panel(p);
            if (pixel == i + j) {
                pack_pixel(p, x, pixel, &part[0], panel);
                pack_pixel(p, x, pixel, &part[1], panel + second);
            }
            at.panel[j] = panel;
            at.y[j] = y + pixel * p->c_out;
            at.mask[j] = mask ? mask + pixel * stride : NULL;
        }
        for (uint32_t o = 0; o < p->c_out; o += GROUP) {
            put_group(p, part, b, &at, o, p->c_out - o < GROUP ? p->c_out - o : GROUP);
        }
    }
}

/* ---- gradient to the input -------------------------------------------------------------------------------------- */

/* Pixels whose sums are kept in scratch between the search for the peak and the rounding. A larger image is
 * computed twice, strip by strip. */
enum { STRIP = 512 };

/* What bwd_x works on: two input channels against all errors. */
struct columns {
    const struct conv2d *p;
    const int8_t *ey;
    const int16_t *a0, *a1; /* [kh * kw] panels of c_out values, a0 == a1 where one channel is left */
    int32_t *sums;          /* [strip][2] */
};

static uint32_t input_pixels(const struct conv2d *p)
{
    return (uint32_t)p->h_in * p->w_in;
}

static uint32_t strip_pixels(const struct conv2d *p)
{
    return input_pixels(p) < STRIP ? input_pixels(p) : (uint32_t)STRIP;
}

static uint32_t column_panels(const struct conv2d *p)
{
    return (uint32_t)p->kh * p->kw * panel_size(p->c_out);
}

uint32_t conv2d_bwd_x_scratch(const struct conv2d *p)
{
    return 8 * strip_pixels(p) + (2 * column_panels(p) + panel_size(p->c_out)) * (uint32_t)sizeof(int16_t);
}

/* r[o] = rint(scale[o] / S * 2^guard), 0..256. Returns S / 2^guard. */
static float align_errors(const struct conv2d *p, const float *scale, int16_t *r)
{
    float largest = 0.0f, one = (float)(1 << p->guard);
    for (uint32_t o = 0; o < p->c_out; o++) {
        largest = scale[o] > largest ? scale[o] : largest;
    }
    for (uint32_t o = 0; o < p->c_out; o++) {
        r[o] = (int16_t)(largest > 0.0f ? rintf(scale[o] / largest * one) : 0.0f);
    }
    return largest / one;
}

/* panel[kh * kw][o] = r[o] * w[o][tap][column] of a matrix of `count` columns; |r * w| <= 2^15. */
static void pack_column(const struct conv2d *p, const int8_t *w, uint32_t count, const int16_t *r, int16_t *panel)
{
    uint32_t taps = (uint32_t)p->kh * p->kw, row = taps * count, full = p->c_out & ~3u;
    for (uint32_t tap = 0; tap < taps; tap++, w += count, panel += panel_size(p->c_out)) {
        const int8_t *at = w;
        uint32_t o = 0;
        for (; o < full; o += 4, at += 4 * row) {
            panel[o] = (int16_t)(r[o] * at[0]);
            panel[o + PANEL_1] = (int16_t)(r[o + 1] * at[row]);
            panel[o + PANEL_2] = (int16_t)(r[o + 2] * at[2 * row]);
            panel[o + 3] = (int16_t)(r[o + 3] * at[3 * row]);
        }
        for (; o < p->c_out; o++, at += row) {
            panel[o] = (int16_t)(r[o] * *at);
        }
    }
}

/* Output index that reads input `at` through a tap, or -1. */
ALWAYS_INLINE int32_t output_index(int32_t at, int32_t stride, int32_t size)
{
    return at >= 0 && at % stride == 0 && at / stride < size ? at / stride : -1;
}

/* The two sums of one input pixel: every tap through which some output reads it. */
static void sum_window(const struct columns *col, int32_t y, int32_t x, int32_t sums[2])
{
    const struct conv2d *p = col->p;
    uint32_t segment = panel_size(p->c_out), offset = 0;
    for (int32_t ky = 0; ky < p->kh; ky++) {
        int32_t oy = output_index(y + p->pad_h - ky, p->stride_h, p->h_out);
        for (int32_t kx = 0; kx < p->kw; kx++, offset += segment) {
            int32_t ox = oy < 0 ? -1 : output_index(x + p->pad_w - kx, p->stride_w, p->w_out);
            if (ox >= 0) {
                const int8_t *e = col->ey + (oy * p->w_out + ox) * p->c_out;
                dot_rows(col->a0 + offset, col->a1 + offset, e, p->c_out, 1, sums);
            }
        }
    }
}

static void sums_strip(const struct columns *col, uint32_t first, uint32_t n)
{
    memset(col->sums, 0, 2 * n * sizeof *col->sums);
    if (is_pointwise(col->p)) {
        uint32_t c = col->p->c_out;
        dot_rows(col->a0, col->a1, col->ey + first * c, c, n, col->sums);
        return;
    }
    int32_t y = (int32_t)(first / col->p->w_in), x = (int32_t)(first % col->p->w_in);
    for (uint32_t j = 0; j < n; j++) {
        sum_window(col, y, x, col->sums + 2 * j);
        if (++x == col->p->w_in) {
            x = 0;
            y++;
        }
    }
}

/* Errors of `live` (1 or 2) input channels: peak over all pixels, then rounding. */
static void put_columns(const struct columns *col, const struct channel ch[2], const float unit[2],
                        float *const scale[2], uint32_t live)
{
    uint32_t pixels = input_pixels(col->p), strip = strip_pixels(col->p);
    int32_t peak[2] = {0, 0};
    for (uint32_t i = 0; i < pixels; i += strip) {
        uint32_t n = pixels - i < strip ? pixels - i : strip;
        sums_strip(col, i, n);
        for (uint32_t j = 0; j < live; j++) {
            peak[j] = channel_peak(&ch[j], i, n, col->sums + j, 2, peak[j]);
        }
    }
    float gain[2] = {0.0f, 0.0f};
    for (uint32_t j = 0; j < live; j++) {
        gain[j] = channel_gain((float)peak[j], unit[j], scale[j]);
    }
    for (uint32_t i = 0; i < pixels; i += strip) {
        uint32_t n = pixels - i < strip ? pixels - i : strip;
        if (pixels > strip) {
            sums_strip(col, i, n);
        }
        for (uint32_t j = 0; j < live; j++) {
            channel_write(&ch[j], i, n, col->sums + j, 2, gain[j]);
        }
    }
}

void conv2d_bwd_x_s8(const struct conv2d *p, const struct error_s8 *ey, const struct split_weights *w,
                     const struct clamp *clamp, const struct error_s8 *ex, void *scratch)
{
    int32_t *sums = scratch;
    int16_t *panels = (int16_t *)(void *)(sums + 2 * strip_pixels(p));
    int16_t *r = panels + 2 * column_panels(p);
    float aligned = align_errors(p, ey->scale, r);
    uint32_t frozen = (uint32_t)p->c_in - w->c_trained;
    for (uint32_t i = 0; i < p->c_in; i += 2) {
        uint32_t live = p->c_in - i > 1 ? 2 : 1;
        struct columns col = {.p = p, .ey = ey->q, .a0 = panels, .a1 = panels, .sums = sums};
        struct channel ch[2] = {{0}};
        float unit[2] = {0.0f, 0.0f}, *scale[2] = {NULL, NULL};
        for (uint32_t j = 0; j < live; j++) {
            uint32_t column = i + j, at = w->order ? w->order[column] : column;
            const int8_t *from = column < frozen ? w->frozen + column : w->trained + (column - frozen);
            pack_column(p, from, column < frozen ? frozen : w->c_trained, r, panels + j * column_panels(p));
            ch[j] = channel_of(ex, clamp, p->c_in, at);
            unit[j] = channel_unit(clamp, at, aligned);
            scale[j] = &ex->scale[at];
        }
        if (live > 1) {
            col.a1 = panels + column_panels(p);
        }
        put_columns(&col, ch, unit, scale, live);
    }
}
