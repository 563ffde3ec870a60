/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient to the input of dense convolutions, for Armv7E-M: spans of neighbouring channels, and several of them at once
 * where a data cache of 4 KB would otherwise read the lines of their weights again for each. */

/* Pixels first .. first + n of the span, whose channels are neighbours: sums, masked, as floats. */
static void float_strip(const struct columns *col, const struct channel *ch, uint32_t first, uint32_t n, float *peak)
{
    struct mask_view mask = {ch->mask + first * ch->mask_step, ch->mask_step, ch->bit, 0};
    mask.second = (ch->bit + col->at.lanes - 1) / 8;
    sums_strip(col, first, n);
    col->at.lanes == LANES ? mask_errors6(col->sums, n, &mask, peak) : mask_errors4(col->sums, n, &mask, peak);
}

/* put_columns() for a full span of neighbouring channels. */
NEVER_INLINE void put_neighbours(const struct columns *col, const struct joint *to)
{
    uint32_t pixels = input_pixels(col->p), strip = strip_pixels(col->p), c = col->p->c_in, at = col->at.first;
    const struct channel ch = channel_of(to->ex, to->clamp, c, at);
    float peak[LANES] = {0.0f}, gain[LANES];
    for (uint32_t i = 0; i < pixels; i += strip) {
        float_strip(col, &ch, i, pixels - i < strip ? pixels - i : strip, peak);
    }
    for (uint32_t j = 0; j < col->at.lanes; j++) {
        gain[j] = joint_gain(to, at + j, peak[j]);
    }
    for (uint32_t i = 0; i < pixels; i += strip) {
        uint32_t n = pixels - i < strip ? pixels - i : strip;
        if (pixels > strip) {
            float_strip(col, &ch, i, n, peak);
        }
        if (col->at.lanes == LANES) {
            put_errors6(col->sums, n, gain, ch.q + i * c, c);
        } else {
            put_errors4(col->sums, n, gain, ch.q + i * c, c);
        }
    }
}

#ifdef IN_PARTS

/* Columns of more than MANY values, in parts of PART values: spans of six instead of four lanes, several one after the
 * other, so that the lines of a part's weights stay in a data cache of 4 KB until the last span has read them. */
enum { PART = 64, SPANS_OF_PARTS = 4 };

/* The place of a tile is taken by that of a part, by the errors of all pixels in it, and by the spans' sums. */
static uint32_t bytes_beside_sums(uint32_t pixels)
{
    return tile_bytes(PART, LANES) + PART * pixels;
}

/* Spans that sum_parts() sums, of `left` columns of neighbouring channels; 0: a span at a time, whole. */
static uint32_t spans_in_parts(const struct columns *col, uint32_t left)
{
    uint32_t pixels = input_pixels(col->p), c = col->p->c_out, sums = 4 * LANES * pixels;
    if (c <= MANY || !is_pointwise(col->p) || pixels > STRIP || col->alike) {
        return 0;
    }
    uint32_t bytes = tile_bytes(c, FEW_LANES), taken = bytes_beside_sums(pixels), most = left / LANES;
    uint32_t room = bytes > taken ? (bytes - taken) / sums : 0;
    most = most < SPANS_OF_PARTS ? most : (uint32_t)SPANS_OF_PARTS;
    return room < most ? room : most;
}

/* Sums of that many spans from col->w on, in `sums`, one span's behind the other's. */
static void sum_parts(const struct columns *col, uint32_t spans, int32_t *sums)
{
    const struct span at = {.lanes = LANES, .live = LANES};
    uint32_t pixels = input_pixels(col->p), c = col->p->c_out;
    int8_t *errors = (int8_t *)(col->tile + tile_bytes(PART, LANES) / 2);
    for (uint32_t o = 0, n; o < c; o += n) {
        n = c - o < PART ? c - o : (uint32_t)PART;
        for (uint32_t i = 0; i < pixels; i++) {
            memcpy(errors + i * n, col->ey + i * c + o, n);
        }
        int32_t *to = sums;
        for (uint32_t i = 0; i < spans; i++, to += LANES * pixels) {
            pack_columns(col->tile, &at, col->w + o * col->count + i * LANES, col->count, col->r + o, n);
            o ? dot_rows_add(col->tile, LANES, errors, n, pixels, to)
              : dot_rows(col->tile, LANES, errors, n, pixels, NULL, to);
        }
    }
}

/* put_neighbours() for that many spans. */
NEVER_INLINE void put_parts(struct columns *col, uint32_t spans, const struct joint *to)
{
    int32_t *before = col->sums;
    col->sums = (int32_t *)(void *)((int8_t *)col->tile + round_up4(bytes_beside_sums(input_pixels(col->p))));
    sum_parts(col, spans, col->sums);
    col->summed = 1;
    col->at = (struct span){.first = col->at.first, .lanes = LANES, .live = LANES};
    for (uint32_t i = 0; i < spans; i++, col->at.first += LANES, col->sums += LANES * input_pixels(col->p)) {
        put_neighbours(col, to);
    }
    col->at.first -= LANES;
    col->summed = 0;
    col->sums = before;
}

#endif

#ifndef CODED

/* The factors of weights where all pixels have the same errors, in the place of a tile. */
static void weigh_errors(const struct columns *col)
{
    for (uint32_t o = 0; o < col->p->c_out; o++) {
        col->tile[o] = (int16_t)(col->r[o] * col->ey[o]);
    }
}

/* Spans whose sums are made at once where there is room for them: of rows of weights as long as three lines of a cache.
 * The lines of so many rows stay in one of 4 KB until the last span has read them. */
enum { SPANS = 16, ROWS_AT_ONCE = 16 };

/* Spans from the one at col->at on that weigh() sums at once, of `left` columns. */
static uint32_t spans_at_once(const struct columns *col, uint32_t left)
{
    int room = input_pixels(col->p) >= SPANS && col->at.lanes == LANES && left >= SPANS * LANES;
    return room ? (uint32_t)SPANS : 1;
}

/* Their sums behind weigh_errors(), one span's behind the other's. */
static void weigh(const struct columns *col, uint32_t spans)
{
    uint32_t lanes = col->at.lanes, rows = spans > 1 ? (uint32_t)ROWS_AT_ONCE : col->p->c_out;
    fill_bytes(col->sums, 0, spans * lanes * sizeof *col->sums);
    for (uint32_t o = 0, n; o < col->p->c_out; o += n) {
        n = col->p->c_out - o < rows ? col->p->c_out - o : rows;
        const int8_t *w = col->w + o * col->count;
        int32_t *sums = col->sums;
        for (uint32_t i = spans; i; i--, w += lanes, sums += lanes) {
            lanes == LANES ? weighted_columns6(w, col->count, col->tile + o, n, sums)
                           : weighted_columns4(w, col->count, col->tile + o, n, sums);
        }
    }
}

/* put_neighbours() from the sums of weigh(): the errors of a channel are 0 or all the same. */
NEVER_INLINE void put_alike(const struct columns *col, const struct joint *to, const int32_t *sums)
{
    uint32_t pixels = input_pixels(col->p), c = col->p->c_in, at = col->at.first, lanes = col->at.lanes, passing = 0;
    const struct channel ch = channel_of(to->ex, to->clamp, c, at);
    const uint32_t second = (ch.bit + lanes - 1) / 8;
    const uint8_t *mask = ch.mask;
    int8_t errors[8] = {0}, *q = ch.q;
    for (uint32_t i = pixels; i; i--, mask += ch.mask_step) {
        passing |= mask[0] | (uint32_t)mask[second] << 8;
    }
    for (uint32_t j = 0; j < lanes; j++) {
        int32_t sum = passing >> (ch.bit + j) & 1u ? sums[j] : 0;
        errors[j] = channel_q(sum, joint_gain(to, at + j, (float)larger_magnitude(0, sum)));
    }
    uint32_t first = load_u32(errors), last = load_u32(errors + 4);
    mask = ch.mask;
    for (uint32_t i = pixels; i; i--, mask += ch.mask_step, q += c) {
        uint32_t bits = (mask[0] | (uint32_t)mask[second] << 8) >> ch.bit;
        store_u32(q, first & bytes_of(bits & 15u));
        if (lanes == LANES) {
            uint16_t two = (uint16_t)(last & bytes_of(bits >> 4 & 3u));
            memcpy(q + 4, &two, sizeof two);
        }
    }
}

#endif
