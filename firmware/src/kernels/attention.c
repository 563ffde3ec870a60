/* SPDX-License-Identifier: Apache-2.0 */
/* Attention. Contract: kernels/attention.h. */
#include "kernels/attention.h"

#include "channel.h"
#include "chip.h"

enum { OCTAVE = 256, MOST_OCTAVES = 15, SHARE_BITS = 15, WEIGHT_BITS = 14, ALIGNED = 256 };

/* 2^14 * 2^(-f / 256). */
static const uint16_t POWER[OCTAVE] = {
    16384, 16340, 16296, 16251, 16208, 16164, 16120, 16076, 16033, 15990, 15946, 15903, 15860, 15817, 15775, 15732,
    15689, 15647, 15605, 15562, 15520, 15478, 15437, 15395, 15353, 15312, 15270, 15229, 15188, 15147, 15106, 15065,
    15024, 14984, 14943, 14903, 14862, 14822, 14782, 14742, 14702, 14663, 14623, 14583, 14544, 14505, 14465, 14426,
    14387, 14348, 14310, 14271, 14232, 14194, 14155, 14117, 14079, 14041, 14003, 13965, 13927, 13890, 13852, 13815,
    13777, 13740, 13703, 13666, 13629, 13592, 13555, 13519, 13482, 13446, 13409, 13373, 13337, 13301, 13265, 13229,
    13193, 13157, 13122, 13086, 13051, 13016, 12981, 12945, 12910, 12876, 12841, 12806, 12771, 12737, 12702, 12668,
    12634, 12600, 12566, 12532, 12498, 12464, 12430, 12397, 12363, 12330, 12296, 12263, 12230, 12197, 12164, 12131,
    12098, 12065, 12033, 12000, 11968, 11935, 11903, 11871, 11839, 11807, 11775, 11743, 11711, 11680, 11648, 11617,
    11585, 11554, 11523, 11492, 11460, 11429, 11399, 11368, 11337, 11306, 11276, 11245, 11215, 11185, 11154, 11124,
    11094, 11064, 11034, 11004, 10975, 10945, 10915, 10886, 10856, 10827, 10798, 10769, 10739, 10710, 10681, 10653,
    10624, 10595, 10566, 10538, 10509, 10481, 10453, 10424, 10396, 10368, 10340, 10312, 10284, 10256, 10229, 10201,
    10173, 10146, 10118, 10091, 10064, 10037, 10009, 9982,  9955,  9928,  9902,  9875,  9848,  9821,  9795,  9768,
    9742,  9716,  9689,  9663,  9637,  9611,  9585,  9559,  9533,  9507,  9482,  9456,  9431,  9405,  9380,  9354,
    9329,  9304,  9279,  9253,  9228,  9204,  9179,  9154,  9129,  9104,  9080,  9055,  9031,  9006,  8982,  8958,
    8933,  8909,  8885,  8861,  8837,  8813,  8789,  8766,  8742,  8718,  8695,  8671,  8648,  8624,  8601,  8578,
    8555,  8532,  8508,  8485,  8463,  8440,  8417,  8394,  8371,  8349,  8326,  8304,  8281,  8259,  8236,  8214,
};

/* One head of a query: its tokens, and room for what is known of each. */
struct row {
    const int8_t *x;                      /* of the sequence's first token: the head's query */
    int8_t const *own;                    /* of the query's token, likewise */
    uint32_t rows, columns, down, across; /* tokens, and bytes from one to the next */
    uint32_t c;
    int16_t *query; /* [size], less its zero */
    int32_t *share; /* [rows * columns]: scores, then shares */
    uint32_t total;
};

static uint32_t channels_of(const struct attention *p)
{
    return (uint32_t)p->heads * p->size;
}

static uint32_t tokens_of(const struct attention *p)
{
    return (uint32_t)(p->h / p->step_h) * (p->w / p->step_w);
}

static struct row row_of(const struct attention *p, const int8_t *x, uint32_t pixel, uint32_t head)
{
    const uint32_t c = channels_of(p), y = pixel / p->w, left = pixel % p->w, start = head * p->size;
    const uint32_t first = (y % p->step_h) * p->w + left % p->step_w;
    const int all = p->step_h == 1 && p->step_w == 1;
    return (struct row){
        .x = x + first * 3 * c + start,
        .own = x + pixel * 3 * c + start,
        .rows = all ? 1u : (uint32_t)p->h / p->step_h,
        .columns = all ? (uint32_t)p->h * p->w : (uint32_t)p->w / p->step_w,
        .down = (uint32_t)p->step_h * p->w * 3 * c,
        .across = (uint32_t)p->step_w * 3 * c,
        .c = c,
    };
}

/* sums[j] = a times what stands in part 1 (keys) or 2 (values) of token j. Four tokens at a time, so that a number of a
 * is read once for them. */
static void products(const struct attention *p, const struct row *row, const int16_t *a, uint32_t part, int32_t *sums)
{
    const int8_t *line = row->x + part * row->c;
    const uint32_t across = row->across, size = p->size;
    for (uint32_t i = 0; i < row->rows; i++, line += row->down) {
        const int8_t *at = line;
        uint32_t left = row->columns;
        for (; left >= 4; left -= 4, at += 4 * across, sums += 4) {
            const int8_t *b = at + across, *c = b + across, *d = c + across;
            int32_t w = 0, x = 0, y = 0, z = 0;
            for (uint32_t k = 0; k < size; k++) {
                const int32_t by = a[k];
                w += by * at[k];
                x += by * b[k];
                y += by * c[k];
                z += by * d[k];
            }
            sums[0] = w;
            sums[1] = x;
            sums[2] = y;
            sums[3] = z;
        }
        for (; left; left--, at += across) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < size; k++) {
                sum += a[k] * at[k];
            }
            *sums++ = sum;
        }
    }
}

/* The shares of a query, unnormalised, and their total. */
static void share_out(const struct attention *p, struct row *row)
{
    for (uint32_t d = 0; d < p->size; d++) {
        row->query[d] = (int16_t)(row->own[d] - p->x_zero);
    }
    const uint32_t tokens = row->rows * row->columns;
    int32_t top = INT32_MIN;
    products(p, row, row->query, 1, row->share);
    for (uint32_t j = 0; j < tokens; j++) {
        top = row->share[j] > top ? row->share[j] : top;
    }
    row->total = 0;
    for (uint32_t j = 0; j < tokens; j++) {
        uint32_t below = (uint32_t)top - (uint32_t)row->share[j];
        uint32_t octaves = (uint32_t)((uint64_t)below * p->sharpness >> 24), whole = octaves / OCTAVE;
        uint32_t e = whole < MOST_OCTAVES ? (uint32_t)POWER[octaves % OCTAVE] >> whole : 0;
        row->share[j] = (int32_t)e;
        row->total += e;
    }
}

/* sums[0 .. n - 1], n 1 or 4, from `first` on: weights[j] * what stands there of token j, over all tokens. */
ALWAYS_INLINE void gather_some(const struct row *row, const int32_t *weights, const int8_t *first, int32_t from,
                               int32_t *sums, uint32_t n)
{
    const uint32_t across = row->across;
    int32_t w = from, x = from, y = from, z = from;
    for (uint32_t i = 0; i < row->rows; i++, first += row->down) {
        const int8_t *at = first;
        for (const int32_t *end = weights + row->columns; weights < end; at += across) {
            const int32_t by = *weights++;
            w += by * at[0];
            if (n == 4) {
                x += by * at[1];
                y += by * at[2];
                z += by * at[3];
            }
        }
    }
    sums[0] = w;
    if (n == 4) {
        sums[1] = x;
        sums[2] = y;
        sums[3] = z;
    }
}

/* sums[d] = weights[j] * (part of token j, less zero), over all tokens. Four of d at a time, so that their sums stay in
 * registers. */
static void gather(const struct attention *p, const struct row *row, const int32_t *weights, uint32_t part,
                   int32_t zero, int32_t *sums)
{
    const int8_t *first = row->x + part * row->c;
    int32_t offset = 0;
    for (uint32_t j = 0; j < row->rows * row->columns; j++) {
        offset += weights[j];
    }
    offset *= -zero;
    uint32_t d = 0;
    for (; d + 4 <= p->size; d += 4) {
        gather_some(row, weights, first + d, offset, sums + d, 4);
    }
    for (; d < p->size; d++) {
        gather_some(row, weights, first + d, offset, sums + d, 1);
    }
}

uint32_t attention_fwd_scratch(const struct attention *p)
{
    return 4 * tokens_of(p) + 4u * p->size + round_up4(2u * p->size);
}

void attention_fwd_s8(const struct attention *p, const int8_t *x, int8_t *y, uint8_t *mask, void *scratch PACED)
{
    const uint32_t c = channels_of(p), tokens = tokens_of(p), stride = mask_stride(c);
    int32_t *share = scratch, *sums = share + tokens;
    uint32_t from = 0;
    for (uint32_t pixel = PACE_OUTER(); pixel < (uint32_t)p->h * p->w; pixel++) {
        from = PACE_INNER();
        for (uint32_t head = from; head < p->heads; head++) {
            if (PACE_STOP(pixel, head, tokens * (2u * p->size + WORK_OUTPUT) + (uint32_t)p->size * WORK_OUTPUT)) {
                return;
            }
            for (uint32_t i = 0; mask && head == 0 && i < stride; i++) {
                mask[pixel * stride + i] = 0;
            }
            struct row row = row_of(p, x, pixel, head);
            row.share = share;
            row.query = (int16_t *)(void *)(sums + p->size);
            share_out(p, &row);
            gather(p, &row, share, 2, p->x_zero, sums);
            const float m = p->unit / (float)row.total;
            for (uint32_t d = 0, ch = head * p->size; d < p->size; d++, ch++) {
                int32_t v = round_product(sums[d], m) + p->y_zero, q = saturate8(v);
                y[pixel * c + ch] = (int8_t)q;
                if (mask) {
                    mask[pixel * stride + (ch >> 3)] |= (uint8_t)((v == q ? 1u : 0u) << (ch & 7u));
                }
            }
        }
    }
}

/* What the gradient of a head is made with. */
struct head {
    const struct attention *p;
    const struct error_s8 *ey;
    uint32_t number;
    int32_t *peak;    /* largest |g| of the head */
    int32_t *sums;    /* [pixels][size] */
    int32_t *share;   /* [tokens]: p */
    int32_t *forward; /* [tokens]: f, then g, then w */
    int16_t *query;   /* [size] */
    int16_t *error;   /* [size], aligned */
    int16_t *r;       /* [size] */
    float largest;    /* S */
};

enum { QUERIES, KEYS, VALUES };

uint32_t attention_bwd_x_scratch(const struct attention *p)
{
    uint32_t sums = (uint32_t)p->h * p->w * p->size;
    return 4 + 4 * sums + 8 * tokens_of(p) + 3 * round_up4(2u * p->size);
}

static struct head head_of(const struct attention *p, const struct error_s8 *ey, uint32_t number, void *scratch)
{
    struct head head = {.p = p, .ey = ey, .number = number, .peak = scratch};
    const uint32_t tokens = tokens_of(p), step = round_up4(2u * p->size) / 2;
    const float *scale = ey->scale + number * p->size;
    head.sums = head.peak + 1;
    head.share = head.sums + (uint32_t)p->h * p->w * p->size;
    head.forward = head.share + tokens;
    head.query = (int16_t *)(void *)(head.forward + tokens);
    head.error = head.query + step;
    head.r = head.error + step;
    for (uint32_t d = 0; d < p->size; d++) {
        head.largest = scale[d] > head.largest ? scale[d] : head.largest;
    }
    for (uint32_t d = 0; d < p->size; d++) {
        float r = scale[d] / head.largest * (float)ALIGNED;
        head.r[d] = (int16_t)(head.largest > 0.0f ? round_nearest(r) : 0);
    }
    return head;
}

/* p of a query, in head->share. */
static struct row shares_of(const struct head *head, const int8_t *x, uint32_t pixel)
{
    struct row row = row_of(head->p, x, pixel, head->number);
    row.share = head->share;
    row.query = head->query;
    share_out(head->p, &row);
    for (uint32_t j = 0; j < row.rows * row.columns; j++) {
        row.share[j] = (int32_t)((((uint32_t)row.share[j] << SHARE_BITS) + row.total / 2) / row.total);
    }
    return row;
}

static int32_t shifted(int64_t v, uint32_t bits)
{
    return (int32_t)((v + ((int64_t)1 << bits) / 2) >> bits);
}

/* g of a query, in head->forward. Returns the largest |g|. */
static int32_t gradient_of(const struct head *head, const struct row *row, uint32_t pixel)
{
    const struct attention *p = head->p;
    const uint32_t tokens = row->rows * row->columns;
    const int8_t *ey = head->ey->q + pixel * row->c + head->number * p->size;
    int64_t sum = 0;
    int32_t peak = 0;
    for (uint32_t d = 0; d < p->size; d++) {
        head->error[d] = (int16_t)(ey[d] * head->r[d]);
    }
    products(p, row, head->error, 2, head->forward);
    for (uint32_t j = 0; j < tokens; j++) {
        sum += (int64_t)row->share[j] * head->forward[j];
    }
    const int32_t mean = shifted(sum, SHARE_BITS);
    for (uint32_t j = 0; j < tokens; j++) {
        head->forward[j] = shifted((int64_t)row->share[j] * (head->forward[j] - mean), SHARE_BITS);
        peak = larger_magnitude(peak, head->forward[j]);
    }
    return peak;
}

static uint32_t shift_of(int32_t peak)
{
    uint32_t shift = 0;
    while (peak >> shift >> WEIGHT_BITS) {
        shift++;
    }
    return shift;
}

/* To the sums of each token: weight[j] * a[d]. */
static void scatter(const struct head *head, uint32_t pixel, const int32_t *weight, const int16_t *a)
{
    const struct attention *p = head->p;
    const uint32_t size = p->size, left = pixel % p->w % p->step_w;
    for (uint32_t y = pixel / p->w % p->step_h; y < p->h; y += p->step_h) {
        for (uint32_t x = left; x < p->w; x += p->step_w) {
            int32_t *sums = head->sums + (y * p->w + x) * size;
            int32_t by = *weight++;
            for (uint32_t d = 0; by && d < size; d++) {
                sums[d] += by * a[d];
            }
        }
    }
}

/* What one query adds to the sums of a part. */
static void add_query(const struct head *head, const int8_t *x, uint32_t pixel, uint32_t part)
{
    const struct attention *p = head->p;
    const struct row row = shares_of(head, x, pixel);
    const int32_t peak = gradient_of(head, &row, pixel);
    if (part == VALUES) {
        const int8_t *ey = head->ey->q + pixel * row.c + head->number * p->size;
        *head->peak = peak > *head->peak ? peak : *head->peak;
        for (uint32_t d = 0; d < p->size; d++) {
            head->error[d] = ey[d];
        }
        scatter(head, pixel, head->share, head->error);
        return;
    }
    const uint32_t shift = shift_of(*head->peak);
    for (uint32_t j = 0; j < row.rows * row.columns; j++) {
        head->forward[j] = shifted(head->forward[j], shift);
    }
    if (part == KEYS) {
        scatter(head, pixel, head->forward, head->query);
    } else {
        gather(p, &row, head->forward, 1, p->x_zero, head->sums + pixel * p->size);
    }
}

/* The errors of a part, behind the clamp. */
static void put_part(const struct head *head, uint32_t part, const struct clamp *clamp, const struct error_s8 *ex)
{
    const struct attention *p = head->p;
    const uint32_t c = channels_of(p), pixels = (uint32_t)p->h * p->w, size = p->size;
    const float one = (float)(1u << shift_of(*head->peak));
    const float joint = head->largest / (float)ALIGNED * (p->unit * p->slope) * one;
    for (uint32_t d = 0; d < size; d++) {
        const uint32_t at = part * c + head->number * size + d;
        const struct channel ch = channel_of(ex, clamp, 3 * c, at);
        const float own = head->ey->scale[head->number * size + d] * (p->unit / (float)(1 << SHARE_BITS));
        const int32_t peak = channel_mask(ch, 0, pixels, head->sums + d, size, 0);
        const float unit = channel_unit(clamp, at, part == VALUES ? own : joint);
        const float gain = channel_gain((float)peak, unit, &ex->scale[at]);
        channel_write(ch, 0, pixels, head->sums + d, size, gain);
    }
}

void attention_bwd_x_s8(const struct attention *p, const struct error_s8 *ey, const int8_t *x,
                        const struct clamp *clamp, const struct error_s8 *ex, void *scratch PACED)
{
    static const uint8_t order[3] = {VALUES, QUERIES, KEYS}; /* the first finds the peak */
    const uint32_t pixels = (uint32_t)p->h * p->w;
    for (uint32_t unit = PACE_OUTER(); unit < 3u * p->heads; unit++) {
        const struct head head = head_of(p, ey, unit / 3, scratch);
        const uint32_t part = order[unit % 3];
        for (uint32_t pixel = PACE_INNER(); pixel <= pixels; pixel++) {
            if (PACE_STOP(unit, pixel, (pixel < pixels ? tokens_of(p) : pixels) * (3u * p->size + WORK_OUTPUT))) {
                return;
            }
            if (pixel == 0) {
                *head.peak = part == VALUES ? 0 : *head.peak;
                for (uint32_t i = 0; i < pixels * p->size; i++) {
                    head.sums[i] = 0;
                }
            }
            if (pixel < pixels) {
                add_query(&head, x, pixel, part);
            } else {
                put_part(&head, part, clamp, ex);
            }
        }
    }
}
