/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution whose channels fall into groups, or whose taps lie apart: grouped, dilated, depthwise with a multiplier.
 *
 * What kernels/conv2d.h says of a dense convolution holds here, but for this:
 *
 *   groups   output channels o of group g = o / (c_out / groups) see the input channels of that group alone,
 *            c_in / groups of them from g * c_in / groups on
 *   taps     p->kh and p->kw are what the window covers; its taps lie dilation_h and dilation_w apart, so there are
 *            (kh - 1) / dilation_h + 1 rows of them
 *   weights  [c_out][taps_h][taps_w][c_in / groups]; split_weights.order and c_trained are of the channels of a group,
 *            and the same in each
 *   bwd_x    errors are aligned group by group; p->guard is for c_out / groups channels and the taps
 *   bwd_w    x->index [groups][c_trained]; NULL: the saved channels are just these
 */
#ifndef KERNELS_GROUPED_H
#define KERNELS_GROUPED_H

#include "kernels/conv2d.h"

struct groups {
    uint16_t groups; /* of c_in and of c_out */
    uint8_t dilation_h, dilation_w;
};

void gconv2d_fwd_s8(const struct conv2d *p, const struct groups *s, const int8_t *x, const struct split_weights *w,
                    const int32_t *b, int8_t *y, uint8_t *mask, void *scratch PACED);
uint32_t gconv2d_fwd_scratch(const struct conv2d *p, const struct groups *s);

void gconv2d_bwd_x_s8(const struct conv2d *p, const struct groups *s, const struct error_s8 *ey,
                      const struct split_weights *w, const struct clamp *clamp, const struct error_s8 *ex,
                      void *scratch PACED);
uint32_t gconv2d_bwd_x_scratch(const struct conv2d *p, const struct groups *s);

void gconv2d_bwd_w_s8(const struct conv2d *p, const struct groups *s, const struct error_s8 *ey,
                      const struct saved_input *x, uint16_t c_trained, const struct trained_weights *w,
                      const struct sgd *sgd, void *scratch PACED);
uint32_t gconv2d_bwd_w_scratch(const struct conv2d *p, const struct groups *s, uint16_t c_trained);

#endif
