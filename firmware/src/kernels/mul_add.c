/* SPDX-License-Identifier: Apache-2.0 */
/* A map times one constant a channel, plus another. Contract: kernels/mul_add.h. */
#include "kernels/mul_add.h"

#include "chip.h"
#include "kernels/scale.h"
#include "requantize.h"

ALWAYS_INLINE struct twice by(int32_t fine, uint32_t shift, int32_t zero)
{
    return (struct twice){fine, shift, shift ? (2 * zero + 1) * (1 << (shift - 1)) : 0};
}

/* The output of twice a sum, before saturation. */
ALWAYS_INLINE int32_t rescaled(int32_t twice, struct twice m)
{
    return shift_away(upper_half(twice, m.fine), m);
}

/* What follows on the product. */
enum behind { NOTHING, TERM_OF_HALVES, TERM };

/* One channel; all but its numbers is the same for all of them. */
struct run {
    struct twice product, term, sum;
    int32_t factor, start; /* twice a product is x * factor + start */
    int32_t b;             /* what is added to (t - t_zero) * 2^20, scaled; of halves: to t * 2^20, for twice the sum */
    int32_t t_zero;
    uint32_t c, stride;
    enum behind behind;
};

ALWAYS_INLINE uint32_t put(const struct run *r, int8_t x, int8_t *y)
{
    int32_t v = rescaled(x * r->factor + r->start, r->product), q = saturate8(v);
    uint32_t passes = v == q;
    if (r->behind != NOTHING) {
        int32_t twice = q * (1 << 20) + r->b;
        if (r->behind == TERM) {
            twice = 2 * (rescaled((q - r->t_zero) * (1 << 21), r->term) + r->b);
        }
        v = rescaled(twice, r->sum);
        q = saturate8(v);
        passes &= v == q;
    }
    *y = (int8_t)q;
    return passes;
}

/* One channel. mask: of the first pixel, or NULL; bit: of its bytes, the lowest of which begins them. */
ALWAYS_INLINE void put_pixels(struct run r, enum behind behind, uint32_t pixels, const int8_t *x, int8_t *y,
                              uint8_t *mask, uint32_t bit)
{
    r.behind = behind;
    for (; pixels; pixels--, x += r.c, y += r.c) {
        uint32_t passes = put(&r, *x, y) << bit;
        if (mask) {
            *mask = (uint8_t)(bit ? *mask | passes : passes);
            mask += r.stride;
        }
    }
}

/* The same, with what follows on the product known to the loop. */
ALWAYS_INLINE void put_any(const struct run *r, uint32_t pixels, const int8_t *x, int8_t *y, uint8_t *mask,
                           uint32_t bit)
{
    if (r->behind == TERM_OF_HALVES) {
        put_pixels(*r, TERM_OF_HALVES, pixels, x, y, mask, bit);
    } else if (r->behind == TERM) {
        put_pixels(*r, TERM, pixels, x, y, mask, bit);
    } else {
        put_pixels(*r, NOTHING, pixels, x, y, mask, bit);
    }
}

ALWAYS_INLINE enum behind behind_of(const struct mul_add *p)
{
    if (!p->b) {
        return NOTHING;
    }
    return p->term_by ? TERM : TERM_OF_HALVES;
}

static struct run run_of(const struct mul_add *p, uint32_t c)
{
    return (struct run){
        .product = by(p->product, p->product_by, p->t_zero),
        .term = by(p->term, p->term_by, 0),
        .sum = by(p->sum, p->sum_by, p->y_zero),
        .t_zero = p->t_zero,
        .c = c,
        .stride = mask_stride(c),
        .behind = behind_of(p),
    };
}

void mul_add_fwd_s8(const struct mul_add *p, uint32_t pixels, uint32_t c, const int8_t *x, int8_t *y, uint8_t *mask)
{
    struct run r = run_of(p, c);
    for (uint32_t ch = 0; ch < c; ch++, x++, y++) {
        r.factor = 2 * (p->w[ch] - p->w_zero);
        r.start = -p->x_zero * r.factor;
        r.b = p->b ? p->b[ch] : 0;
        if (r.behind == TERM_OF_HALVES) {
            r.b = 2 * (r.b - p->t_zero * (1 << 19));
        }
        if (mask) {
            put_any(&r, pixels, x, y, mask + ch / 8, ch & 7);
        } else {
            put_any(&r, pixels, x, y, NULL, 0);
        }
    }
}

void mul_add_bwd_x_s8(const struct mul_add *p, uint32_t pixels, uint32_t c, const struct error_s8 *ey,
                      const struct clamp *clamp, const struct error_s8 *ex)
{
    const struct scale product = {.s_zero = p->w_zero, .m = p->m};
    scale_channels_bwd_x_s8(&product, pixels, c, ey, p->w, clamp, ex);
}
