/* SPDX-License-Identifier: Apache-2.0 */
/* Average and maximum pooling. Contract: kernels/pool.h.
 *
 * The gradients are gathered: an input pixel sums what the windows over it say, once for the peak of its channel and
 * once for its value, so that no sums are stored.
 */
#include "kernels/pool.h"

#include "channel.h"

/* Half-open range of outputs or of input pixels along one axis. */
struct range {
    int32_t begin, end;
};

/* Input pixels of output `at`. */
static struct range window_of(int32_t at, int32_t kernel, int32_t stride, int32_t pad, int32_t size)
{
    int32_t begin = at * stride - pad, end = begin + kernel;
    return (struct range){begin < 0 ? 0 : begin, end > size ? size : end};
}

/* Outputs whose window holds input pixel `at`. */
static struct range windows_over(int32_t at, int32_t kernel, int32_t stride, int32_t pad, int32_t size)
{
    int32_t first = at + pad - kernel, last = (at + pad) / stride + 1;
    int32_t begin = first < 0 ? 0 : first / stride + 1;
    return (struct range){begin, last > size ? size : last};
}

ALWAYS_INLINE int32_t average(int32_t sum, int32_t count)
{
#if MICROTRAIN_TFLITE
    return mean_away(sum, count);
#else
    return (int32_t)rintf((float)sum / (float)count);
#endif
}

void avgpool_fwd_s8(const struct pool *p, const int8_t *x, int8_t *y)
{
    int32_t taps = p->kh * p->kw;
    for (int32_t oy = 0; oy < p->h_out; oy++) {
        struct range rows = window_of(oy, p->kh, p->stride_h, p->pad_h, p->h_in);
        for (int32_t ox = 0; ox < p->w_out; ox++) {
            struct range cols = window_of(ox, p->kw, p->stride_w, p->pad_w, p->w_in);
            for (int32_t ch = 0; ch < p->c; ch++) {
                int32_t sum = 0, seen = 0;
                for (int32_t iy = rows.begin; iy < rows.end; iy++) {
                    for (int32_t ix = cols.begin; ix < cols.end; ix++, seen++) {
                        sum += x[(iy * p->w_in + ix) * p->c + ch];
                    }
                }
                sum += (taps - seen) * p->x_zero;
                *y++ = (int8_t)average(sum, taps);
            }
        }
    }
}

void maxpool_fwd_s8(const struct pool *p, const int8_t *x, int8_t *y, uint8_t *arg)
{
    for (int32_t oy = 0; oy < p->h_out; oy++) {
        struct range rows = window_of(oy, p->kh, p->stride_h, p->pad_h, p->h_in);
        for (int32_t ox = 0; ox < p->w_out; ox++) {
            struct range cols = window_of(ox, p->kw, p->stride_w, p->pad_w, p->w_in);
            int32_t top = oy * p->stride_h - p->pad_h, left = ox * p->stride_w - p->pad_w;
            for (int32_t ch = 0; ch < p->c; ch++) {
                int32_t best = INT32_MIN, at = 0;
                for (int32_t iy = rows.begin; iy < rows.end; iy++) {
                    for (int32_t ix = cols.begin; ix < cols.end; ix++) {
                        int32_t v = x[(iy * p->w_in + ix) * p->c + ch];
                        at = v > best ? (iy - top) * p->kw + ix - left : at;
                        best = v > best ? v : best;
                    }
                }
                *y++ = (int8_t)sat8(best);
                if (arg) {
                    *arg++ = (uint8_t)at;
                }
            }
        }
    }
}

/* What the windows over input pixel (y, x) say of one channel. arg NULL: all of them (average), else those whose
 * maximum was here. q and arg: of the channel's output 0. */
static int32_t gather_windows(const struct pool *p, const int8_t *q, const uint8_t *arg, int32_t y, int32_t x)
{
    struct range rows = windows_over(y, p->kh, p->stride_h, p->pad_h, p->h_out);
    struct range cols = windows_over(x, p->kw, p->stride_w, p->pad_w, p->w_out);
    int32_t sum = 0;
    for (int32_t oy = rows.begin; oy < rows.end; oy++) {
        int32_t ky = y + p->pad_h - oy * p->stride_h;
        for (int32_t ox = cols.begin; ox < cols.end; ox++) {
            int32_t at = (oy * p->w_out + ox) * p->c, kx = x + p->pad_w - ox * p->stride_w;
            sum += !arg || arg[at] == ky * p->kw + kx ? q[at] : 0;
        }
    }
    return sum;
}

/* One channel of ex: the peak, then the values. unit: real gradient of 1 in a sum. */
static void pool_channel(const struct pool *p, const struct error_s8 *ey, const uint8_t *arg, const struct clamp *clamp,
                         const struct error_s8 *ex, uint32_t i, float unit)
{
    struct channel ch = channel_of(ex, clamp, p->c, i);
    const int8_t *q = ey->q + i;
    const uint8_t *from = arg ? arg + i : NULL;
    int32_t peak = 0;
    uint32_t pixel = 0;
    for (int32_t y = 0; y < p->h_in; y++) {
        for (int32_t x = 0; x < p->w_in; x++, pixel++) {
            if (channel_passes(&ch, pixel)) {
                peak = larger_magnitude(peak, gather_windows(p, q, from, y, x));
            }
        }
    }
    float gain = channel_gain((float)peak, channel_unit(clamp, i, unit), &ex->scale[i]);
    pixel = 0;
    for (int32_t y = 0; y < p->h_in; y++) {
        for (int32_t x = 0; x < p->w_in; x++, pixel++) {
            channel_put(&ch, pixel, (float)gather_windows(p, q, from, y, x), gain);
        }
    }
}

/* The average of a whole image without padding: every pixel has its share in the one output. */
static int is_global(const struct pool *p)
{
    return p->h_out == 1 && p->w_out == 1 && p->pad_h == 0 && p->pad_w == 0 && p->kh >= p->h_in && p->kw >= p->w_in;
}

/* pool_channel() where every pixel's sum is q. */
static void spread_channel(const struct pool *p, int8_t q, const struct clamp *clamp, const struct error_s8 *ex,
                           uint32_t i, float unit)
{
    struct channel ch = channel_of(ex, clamp, p->c, i);
    uint32_t pixels = (uint32_t)p->h_in * p->w_in;
    int32_t peak = 0;
    for (uint32_t pixel = 0; pixel < pixels && peak == 0; pixel++) {
        peak = channel_passes(&ch, pixel) ? larger_magnitude(0, q) : 0;
    }
    float gain = channel_gain((float)peak, channel_unit(clamp, i, unit), &ex->scale[i]);
    for (uint32_t pixel = 0; pixel < pixels; pixel++) {
        channel_put(&ch, pixel, q, gain);
    }
}

void avgpool_bwd_x_s8(const struct pool *p, const struct error_s8 *ey, const struct clamp *clamp,
                      const struct error_s8 *ex, void *scratch)
{
    (void)scratch;
    for (uint32_t i = 0; i < p->c; i++) {
        float unit = ey->scale[i] / (float)(p->kh * p->kw);
        if (is_global(p)) {
            spread_channel(p, ey->q[i], clamp, ex, i, unit);
        } else {
            pool_channel(p, ey, NULL, clamp, ex, i, unit);
        }
    }
}

void maxpool_bwd_x_s8(const struct pool *p, const struct error_s8 *ey, const uint8_t *arg, const struct clamp *clamp,
                      const struct error_s8 *ex, void *scratch)
{
    (void)scratch;
    for (uint32_t i = 0; i < p->c; i++) {
        pool_channel(p, ey, arg, clamp, ex, i, ey->scale[i]);
    }
}

/* Nothing is stored between the two passes: both gradients work without scratch. */
uint32_t avgpool_bwd_x_scratch(const struct pool *p)
{
    (void)p;
    return 0;
}

uint32_t maxpool_bwd_x_scratch(const struct pool *p)
{
    (void)p;
    return 0;
}
