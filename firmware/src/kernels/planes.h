/* SPDX-License-Identifier: Apache-2.0 */
/* Planes: what depthwise convolutions read. A tile of a few output rows and columns sees a window of the image; of up
 * to four channels at a time the window is unpacked into planes, rows of int16 values with the zero point taken out
 * and zeros where there is no image. The gradient to the input is the same sum over the errors with flipped taps; with
 * a stride, zeros stand between the errors.
 *
 * Planes have rows of NARROW_PLACES values, or of WIDE_PLACES where the image is wide and the tile low; so
 * depthwise_armv7em.S, which knows these lengths, can sum square kernels of 3, 5 and 7 taps.
 */
#ifndef KERNELS_PLANES_H
#define KERNELS_PLANES_H

#include "chip.h"
#include "kernels/conv2d.h"

enum { PLANES = 4, NARROW_PLACES = 24, WIDE_PLACES = 40, TILE_WIDTH = 16, TILE_HEIGHT = 8 };

/* An image as windows see it: its pixel (y, x) is row y * space_h + pad_h, column x * space_w + pad_w of what the
 * windows slide over, windows of kh * kw taps at every stride_h-th row and stride_w-th column. */
struct view {
    const int8_t *image; /* [image_h][image_w][c] */
    int32_t image_h, image_w, zero, pad_h, pad_w, space_h, space_w;
    uint32_t c, kh, kw, stride_h, stride_w;
    uint32_t h, w;           /* windows, that is outputs */
    uint32_t tile_h, tile_w; /* outputs of a tile at most */
    uint32_t shift;          /* place of the first window's first tap in a row */
    uint32_t places;         /* of a row, even */
    uint32_t plane;          /* places of a plane */
    uint32_t fast;           /* not 0: depthwise_armv7em.S sums it */
    int flip;                /* the last weight is the first tap */
};

/* Outputs of a channel that follow one another both in the image and in the sums: `count` runs of `length`, and the
 * bytes from the end of a run to the next one. The order is that of requantize_armv7em.S. */
struct runs {
    uint32_t count, sums_skip, y_skip, length;
};

/* Along one axis: the image pixels first .. first + n lie at places `at`, at + space, ... of the window. */
struct overlap {
    int32_t first, n, at;
};

#if KERNELS_MVE
/* How columns are made of an image; the order, as that of the next two, is depthwise_mve.S's. */
struct upright {
    uint32_t row_bytes, c;
    uint32_t columns; /* of the image */
    int32_t first;    /* which row of the image the first one is: negative outside */
    uint32_t groups;
    int32_t rows;   /* of the image that are seen; not 0 */
    uint32_t group; /* bytes of a group */
    uint32_t zero;  /* a byte */
    int8_t *to;     /* columns of the image */
};

/* How the weights of a channel become vectors. */
struct unpack {
    const int8_t *places; /* of the weights in the vectors */
    uint32_t vectors;
    int8_t *taps;
    uint32_t last; /* 0, or of flipped weights the last one's place */
};

/* How windows are summed from columns. */
struct sight {
    const int8_t *columns, *taps;
    uint32_t fours; /* windows of a row, by four */
    uint32_t rows;
    uint32_t group;      /* bytes */
    uint32_t step, skip; /* of columns of eight: bytes to the next window; in sums from the end of a row to the next */
};

struct tile;

/* What a tile sees, as columns of `height` bytes, and where all that is. */
struct stand {
    const struct view *v;
    const struct tile *tile;
    uint32_t height;
    uint32_t kind; /* of the kernel: kw, and 1 more where its stride is not 1 */
    struct overlap columns;
    const int8_t *from; /* what is seen of channel 0 */
    struct upright at;
    int inside;   /* all that is seen is image */
    int32_t seen; /* 0: no image; 1: one whose pixels are neighbours; 2: one between whose pixels there are zeros */
    struct unpack unpack;
    struct sight sight, odd; /* where rows of windows are summed two by two, odd ones by themselves, if there are any */
    int32_t zero;
};
#endif

/* Outputs y .. y + h, x .. x + w of a view, and what they see of the image. Their sums lie `row` apart from row to
 * row. */
struct tile {
    uint32_t y, x, h, w, row;
    struct runs runs;
    struct overlap rows, columns;
};

/* How windows of p see its input; of how its input sees the errors. */
void view_of_input(const struct conv2d *p, const int8_t *x, uint32_t c, struct view *v);
void view_of_errors(const struct conv2d *p, const int8_t *ey, struct view *v);

/* Which functions of run_windows() could sum it, or a strip of its rows: bit 0 for way 1. */
uint32_t ways_of(const struct view *v);

/* Bytes of the planes of some channels; of the unpacked taps of one; of its sums in a tile. */
uint32_t planes_bytes(const struct view *v, uint32_t lanes);
uint32_t taps_bytes(const struct view *v);
uint32_t tile_sums_bytes(const struct view *v);

/* The first tile of a view; the next one, or h 0 behind the last. */
void first_tile(const struct view *v, struct tile *tile);
void next_tile(const struct view *v, struct tile *tile);

/* Zeros in all places of `lanes` planes. */
void clear_planes(const struct view *v, int16_t *planes, uint32_t lanes);

/* Unpacks what the tile sees of the listed channels, one by one. Places without image stay as they are. */
void fill_planes(const struct view *v, const struct tile *tile, const uint16_t *channels, uint32_t lanes,
                 int16_t *planes);

/* sums[row of the tile][tile->row] = bias + window . weights w of the channel, tap by tap; taps: room for taps_bytes(v).
 */
void sum_windows(const struct view *v, const struct tile *tile, const int16_t *plane, const int8_t *w, int32_t *taps,
                 int32_t bias, int32_t *sums);

#if KERNELS_DSP

/* Rows of an image as planes_of_four() unpacks them; the order is that of depthwise_armv7em.S. */
struct strip {
    const int8_t *x;      /* four channels of the first pixel */
    uint32_t c;           /* bytes from pixel to pixel */
    int16_t *plane;       /* place of the first pixel in plane 0 */
    uint32_t plane_bytes; /* from plane to plane */
    uint32_t shift;       /* minus the zero point, in both halves */
    uint32_t columns, rows;
    uint32_t x_skip, place_skip; /* bytes from the end of a row to the next */
    uint32_t odd;                /* the first pixel lies at an odd place */
};

/* What a tile sees of channels 0 to 3; rows is 0 where that is nothing, or zeros stand between the pixels. */
void strip_of(const struct view *v, const struct tile *tile, int16_t *planes, struct strip *strip);
void planes_of_four(const struct strip *strip);

/* How depthwise_armv7em.S, whose order this is, goes over the windows of a channel: what is the same of all channels of
 * a tile, and the bias and the word of one. */
struct windows {
    uint32_t row_bytes; /* of the plane from the first window of a row to behind the last */
    uint32_t rows;
    int32_t bias;
    uint32_t skip;       /* bytes of the plane from behind a row of windows to the next */
    int32_t word;        /* of the channel's multiplier, negative: outputs are made; 0: sums are kept */
    int32_t offset;      /* multiplier_offset() of the zero point */
    uint32_t c, three_c; /* bytes to the next output, and to the third behind it */
    uint32_t y_skip;     /* from the end of a row of the tile to the next */
    uint32_t *taps;      /* room for taps_bytes() of the view */
    uint32_t flip, fast; /* of the view */
};

/* Those of a tile, for sums; v->fast. */
void windows_of(const struct view *v, const struct tile *tile, void *taps, struct windows *at);

/* Sums of a channel's windows in the tile, or its outputs, from `to` on. Outputs are of whole fours of columns. */
void run_windows(const int16_t *plane, const int8_t *w, void *to, const struct windows *at);

/* How phases_armv7em.S, whose order this is, goes over the errors behind a 7x7 kernel with stride 2. */
struct phases {
    uint32_t rows, fours; /* of a phase: rows, and windows of a row by four */
    uint32_t skip;        /* bytes of the plane from behind a row of windows to the next */
    uint32_t *taps;       /* room for taps_bytes() of the errors' view */
};

/* Where sum_phases() can sum it, a view of errors becomes one without zeros between them, of one tile. Returns 0
 * elsewhere. */
int begin_phases(struct view *errors, void *taps, struct phases *at);

/* Sums of a channel's windows, [h][w] of the view that was. */
void sum_phases(const int16_t *plane, const int8_t *w, int32_t *sums, const struct phases *at);

#endif

#if KERNELS_MVE

/* origin: what place 0 is in the coordinates of the image, zeros between its pixels counted. */
struct overlap overlap_of(int32_t origin, int32_t places, int32_t size, int32_t space);

/* True where windows are summed from columns (planes_mve.h), which lie where planes of two channels would. */
int is_upright(const struct view *v);

/* Makes tiles as wide as the image, and as high as so much scratch allows, where that is not smaller. */
void widen_tiles(struct view *v, uint32_t bytes);

/* taps: room for taps_bytes(v). */
void stand_of(const struct view *v, const struct tile *tile, void *columns, void *taps, struct stand *s);

/* Zero points in all places. */
void clear_columns(const struct stand *s);

/* sum_windows() of one channel, which is unpacked first. */
void sum_channel(const struct stand *s, uint32_t channel, const int8_t *w, int32_t bias, int32_t *sums);

#endif

#endif
