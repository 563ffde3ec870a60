/* A chain of convolutions that runs row by row: the tensors between its stages never exist whole.
 *
 * Each stage keeps a window of as many input rows as its kernel is high. A row that enters the chain travels down it
 * as far as the windows allow; nothing is computed twice, and every row is made by the very kernels that make whole
 * tensors, so the bytes are the same. An inverted bottleneck is such a chain, with its residual add at the end.
 */
#ifndef KERNELS_STREAM_H
#define KERNELS_STREAM_H

#include "kernels/conv2d.h"
#include "kernels/elementwise.h"

enum { STREAM_STAGES_MAX = 12 };

/* One convolution of the chain. */
struct stream_stage {
    const struct conv2d *row; /* one output row: h_in = kh, h_out = 1, stride_h = 1, pad_h = 0; else as the layer */
    const struct split_weights *w;
    const int32_t *b;
    uint16_t h_in, h_out; /* rows of the layer */
    uint8_t stride_h, pad_h;
    uint8_t depthwise;
};

struct stream {
    const struct stream_stage *stage;
    const struct add *add; /* y = add(last stage, x), for one row (pixels = w_out); NULL: none */
    uint16_t stages;       /* 1..STREAM_STAGES_MAX */
};

/* y = the chain applied to x.
 *
 * x        int8  [h_in][w_in][c_in] of the first stage
 * y        int8  [h_out][w_out][c_out] of the last stage; may not overlap x
 * scratch  stream_fwd_scratch(stage, stages, add != NULL) bytes, 4-byte aligned: windows, one row, the kernels' scratch
 */
void stream_fwd_s8(const struct stream *s, const int8_t *x, int8_t *y, void *scratch);
uint32_t stream_fwd_scratch(const struct stream_stage *stage, uint32_t stages, uint32_t add);

#endif
