/* SPDX-License-Identifier: Apache-2.0 */
#include "screen.h"

#include <stddef.h>

#include "camera.h"
#include "display.h"
#include "glyphs.h"
#include "text.h"

enum { BLACK = 0x0000, WHITE = 0xffff, GREY = 0x8410, GREEN = 0x07e0, RED = 0xf800 };

/* Places, in pixels. */
enum {
    PICTURE_TOP = (DISPLAY_HEIGHT - CAMERA_HEIGHT) / 2,
    PANEL_LEFT = CAMERA_WIDTH + 12,
    PANEL_WIDTH = DISPLAY_WIDTH - PANEL_LEFT - 8,
    MODE_TOP = 16,
    CLASS_TOP = 52,
    BAR_TOP = 144,
    BAR_HEIGHT = 20,
    PERCENT_TOP = 170,
    STEPS_TOP = 210,
    RIGHT_TOP = 236,
    SMALL = 2, /* times the glyph's size */
    LARGE = 10,
};

void screen_open(struct screen *s)
{
    s->frame = display_open();
}

static void fill(const struct screen *s, uint32_t x, uint32_t y, uint32_t width, uint32_t height, uint16_t colour)
{
    for (uint32_t row = y; row < y + height; row++) {
        for (uint32_t column = x; column < x + width; column++) {
            s->frame[row * DISPLAY_WIDTH + column] = colour;
        }
    }
}

void screen_row(const struct screen *s, uint32_t y, const uint8_t *pixels)
{
    if (!s->frame) {
        return;
    }
    volatile uint16_t *to = s->frame + (PICTURE_TOP + y) * DISPLAY_WIDTH;
    for (uint32_t x = 0; x < CAMERA_WIDTH; x++) {
        to[x] = (uint16_t)(pixels[2 * x] << 8 | pixels[2 * x + 1]);
    }
}

static const struct glyph *find(char letter)
{
    for (uint32_t i = 0; i < sizeof glyphs / sizeof glyphs[0]; i++) {
        if (glyphs[i].letter == letter) {
            return &glyphs[i];
        }
    }
    return NULL; /* a space */
}

/* A letter; its ink in colour, the rest untouched. */
static void draw_letter(const struct screen *s, uint32_t x, uint32_t y, uint32_t size, char letter, uint16_t colour)
{
    const struct glyph *glyph = find(letter);
    if (!glyph) {
        return;
    }
    for (uint32_t row = 0; row < GLYPH_HEIGHT; row++) {
        for (uint32_t column = 0; column < GLYPH_WIDTH; column++) {
            if (glyph->row[row] >> (GLYPH_WIDTH - 1 - column) & 1) {
                fill(s, x + column * size, y + row * size, size, size, colour);
            }
        }
    }
}

/* Up to the panel's right end. Returns where the next letter would begin. */
static uint32_t draw_text(const struct screen *s, uint32_t x, uint32_t y, uint32_t size, const char *text,
                          uint16_t colour)
{
    for (; *text && x + GLYPH_WIDTH * size <= DISPLAY_WIDTH; text++) {
        draw_letter(s, x, y, size, *text, colour);
        x += (GLYPH_WIDTH + 1) * size;
    }
    return x;
}

static uint32_t draw_number(const struct screen *s, uint32_t x, uint32_t y, uint32_t size, uint32_t number)
{
    char text[TEXT_U32_MAX + 1];
    text[text_u32(text, number)] = '\0';
    return draw_text(s, x, y, size, text, WHITE);
}

/* A frame, filled from the left. */
static void draw_bar(const struct screen *s, uint32_t percent)
{
    uint32_t inside = PANEL_WIDTH - 4;
    fill(s, PANEL_LEFT, BAR_TOP, PANEL_WIDTH, BAR_HEIGHT, GREY);
    fill(s, PANEL_LEFT + 2, BAR_TOP + 2, inside, BAR_HEIGHT - 4, BLACK);
    fill(s, PANEL_LEFT + 2, BAR_TOP + 2, inside * percent / 100, BAR_HEIGHT - 4, GREEN);
}

static void draw_result(const struct screen *s, const struct panel *p)
{
    (void)draw_number(s, PANEL_LEFT, CLASS_TOP, LARGE, p->class);
    draw_bar(s, p->percent);
    uint32_t x = draw_number(s, PANEL_LEFT, PERCENT_TOP, SMALL, p->percent);
    (void)draw_text(s, x, PERCENT_TOP, SMALL, " %", WHITE);
}

void screen_panel(const struct screen *s, const struct panel *p)
{
    if (!s->frame) {
        return;
    }
    fill(s, CAMERA_WIDTH, 0, DISPLAY_WIDTH - CAMERA_WIDTH, DISPLAY_HEIGHT, BLACK);
    (void)draw_text(s, PANEL_LEFT, MODE_TOP, SMALL, p->mode, GREY);
    if (p->complaint) {
        (void)draw_text(s, PANEL_LEFT, CLASS_TOP, SMALL, p->complaint, RED);
    } else {
        draw_result(s, p);
    }
    uint32_t x = draw_text(s, PANEL_LEFT, STEPS_TOP, SMALL, "steps ", GREY);
    (void)draw_number(s, x, STEPS_TOP, SMALL, p->steps);
    x = draw_text(s, PANEL_LEFT, RIGHT_TOP, SMALL, "right ", GREY);
    x = draw_number(s, x, RIGHT_TOP, SMALL, p->correct);
    x = draw_text(s, x, RIGHT_TOP, SMALL, "/", WHITE);
    (void)draw_number(s, x, RIGHT_TOP, SMALL, p->counted);
}
