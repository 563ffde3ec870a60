/* Dense convolution: gradient to the weights with the update folded in; bias update; gather.
 * Contract: kernels/conv2d.h. */
#include "kernels/conv2d.h"

#include "dot.h"
#include "update.h"

/* Saved input channels that are transposed at once: many where the image is small, for speed, few where it is large,
 * for memory. */
enum { BLOCK = 8 };

static uint32_t block_channels(uint32_t pixels, uint32_t c_trained)
{
    uint32_t block = pixels <= 256 ? (uint32_t)BLOCK : pixels <= 512 ? 4 : 2;
    return block < c_trained ? block : c_trained;
}

static uint32_t padded_pixels(const struct conv2d *p)
{
    return round_up4((uint32_t)p->h_out * p->w_out);
}

uint32_t conv2d_bwd_w_scratch(const struct conv2d *p, uint16_t c_trained)
{
    uint32_t pixels = padded_pixels(p);
    return pixels * (block_channels(pixels, c_trained) + 2 * (uint32_t)sizeof(int16_t));
}

/* One tap and a block of trained channels. */
struct block {
    uint32_t ky, kx;
    uint32_t first, count; /* trained channels */
    uint32_t pixels;       /* of the output, rounded up to 4 */
    int8_t *rows;          /* [count][pixels] saved inputs under the tap, padding as x_zero */
    int16_t *panels;       /* [2][pixels] errors of two output channels, 0 behind the last pixel */
};

/* row[pixel] = what output `pixel` sees of one saved channel through the block's tap. */
static void pack_row(const struct conv2d *p, const struct saved_input *x, const struct block *at, uint32_t channel,
                     int8_t *row)
{
    const int8_t *from = x->x + (x->index ? x->index[channel] : channel);
    int32_t left = (int32_t)at->kx - p->pad_w, y = (int32_t)at->ky - p->pad_h;
    for (uint32_t oy = 0; oy < p->h_out; oy++, y += p->stride_h) {
        int32_t inside = y >= 0 && y < p->h_in, ix = left;
        for (uint32_t ox = 0; ox < p->w_out; ox++, ix += p->stride_w) {
            int32_t seen = inside && ix >= 0 && ix < p->w_in;
            *row++ = seen ? from[(y * p->w_in + ix) * x->c_x] : (int8_t)p->x_zero;
        }
    }
    for (uint32_t i = (uint32_t)p->h_out * p->w_out; i < at->pixels; i++) {
        *row++ = 0;
    }
}

/* panel[pixel] = error of one output channel. Returns the sum of the errors. */
static int32_t pack_errors(const int8_t *e, uint32_t c, uint32_t pixels, uint32_t padded, int16_t *panel)
{
    int32_t sum = 0;
    uint32_t full = pixels & ~3u, i = 0;
    for (; i < full; i += 4, e += 4 * c) {
        int32_t e0 = e[0], e1 = e[c], e2 = e[2 * c], e3 = e[3 * c];
        panel[i] = (int16_t)e0;
        panel[i + PANEL_1] = (int16_t)e1;
        panel[i + PANEL_2] = (int16_t)e2;
        panel[i + 3] = (int16_t)e3;
        sum += e0 + e1 + e2 + e3;
    }
    if (i < padded) {
        static const uint8_t place[4] = {0, PANEL_1, PANEL_2, 3};
        for (uint32_t j = 0; j < 4; j++, e += c) {
            int32_t v = i + j < pixels ? *e : 0;
            panel[i + place[j]] = (int16_t)v;
            sum += v;
        }
    }
    return sum;
}

/* Everything the update of one layer needs beside the block. */
struct descent {
    const struct trained_weights *w;
    uint32_t key;
    uint32_t taps, c_trained;
    int32_t x_zero;
};

/* Gradients and steps of the block's weights of output channels o and, if live is 2, o + 1.
 * sum e * (x - zero) = sum e * x - zero * sum e, exact in int32. */
static void descend(const struct descent *d, const struct block *at, uint32_t tap, uint32_t o, uint32_t live,
                    const int32_t esum[2], const float factor[2])
{
    int32_t sums[2 * BLOCK] = {0};
    dot_rows(at->panels, live > 1 ? at->panels + at->pixels : at->panels, at->rows, at->pixels, at->count, sums);
    for (uint32_t i = 0; i < live; i++) {
        struct steps steps = {.sums = sums + i, .stride = 2, .shift = d->x_zero * esum[i], .factor = factor[i]};
        update_weights(d->w, ((o + i) * d->taps + tap) * d->c_trained + at->first, at->count, &steps, d->key);
    }
}

/* All weights of one tap and a block of trained channels. */
static void descend_block(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x,
                          const struct descent *d, const struct block *at, float lr)
{
    uint32_t pixels = (uint32_t)p->h_out * p->w_out, tap = at->ky * p->kw + at->kx;
    for (uint32_t t = 0; t < at->count; t++) {
        pack_row(p, x, at, at->first + t, at->rows + t * at->pixels);
    }
    for (uint32_t o = 0; o < p->c_out; o += 2) {
        uint32_t live = p->c_out - o > 1 ? 2 : 1;
        int32_t esum[2] = {0, 0};
        float factor[2] = {0.0f, 0.0f};
        for (uint32_t i = 0; i < live; i++) {
            esum[i] = pack_errors(ey->q + o + i, p->c_out, pixels, at->pixels, at->panels + i * at->pixels);
            factor[i] = lr * d->w->qas[o + i] * ey->scale[o + i];
        }
        descend(d, at, tap, o, live, esum, factor);
    }
}

void conv2d_bwd_w_s8(const struct conv2d *p, const struct error_s8 *ey, const struct saved_input *x, uint16_t c_trained,
                     const struct trained_weights *w, const struct sgd *sgd, void *scratch)
{
    uint32_t pixels = padded_pixels(p), most = block_channels(pixels, c_trained);
    struct descent d = {.w = w, .key = random_key(sgd->seed, sgd->step, w->id)};
    d.taps = (uint32_t)p->kh * p->kw;
    d.c_trained = c_trained;
    d.x_zero = p->x_zero;
    struct block at = {.pixels = pixels, .panels = scratch, .rows = (int8_t *)((int16_t *)scratch + 2 * pixels)};
    for (at.ky = 0; at.ky < p->kh; at.ky++) {
        for (at.kx = 0; at.kx < p->kw; at.kx++) {
            for (at.first = 0; at.first < c_trained; at.first += most) {
                at.count = c_trained - at.first < most ? c_trained - at.first : most;
                descend_block(p, ey, x, &d, &at, sgd->lr_weight);
            }
        }
    }
}

/* b saturated at +-limit after subtracting delta, |delta| < 2^24; no step leaves int32. */
static int32_t subtract_within(int32_t b, int32_t delta, int32_t limit)
{
    if (delta < 0) {
        return b > limit + delta ? limit : b - delta;
    }
    return b < delta - limit ? -limit : b - delta;
}

void bias_update_s32(uint32_t pixels, uint32_t c, const struct error_s8 *ey, const struct trained_bias *b,
                     const struct sgd *sgd)
{
    uint32_t key = random_key(sgd->seed, sgd->step, b->id);
    for (uint32_t ch = 0; ch < c; ch++) {
        int32_t sum = 0;
        for (uint32_t i = 0; i < pixels; i++) {
            sum += ey->q[i * c + ch];
        }
        float step = sgd->lr_bias * ey->scale[ch] * b->qas[ch] * (float)sum;
        int32_t noise = (int32_t)(random16(key, ch) & 0xffu);
        b->b[ch] = subtract_within(b->b[ch], (round_step(step) + noise) >> 8, b->limit);
    }
}

void gather_s8(uint32_t pixels, uint32_t c, const int8_t *x, const uint16_t *index, uint32_t c_index, int8_t *y)
{
    for (; pixels; pixels--, x += c) {
        for (uint32_t i = 0; i < c_index; i++) {
            *y++ = x[index[i]];
        }
    }
}
