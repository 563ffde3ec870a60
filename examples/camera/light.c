/* SPDX-License-Identifier: Apache-2.0 */
#include "light.h"

#include "board.h"

enum { SURE_PERCENT = 90, LIKELY_PERCENT = 60 };

static void show(struct light *l, struct light pattern)
{
    *l = pattern;
    l->start_ms = board_millis();
}

void light_prediction(struct light *l, uint32_t class, uint32_t percent)
{
    uint16_t on = percent >= SURE_PERCENT ? 800 : percent >= LIKELY_PERCENT ? 400 : 150;
    show(l, (struct light){.blinks = (uint8_t)(class + 1), .on_ms = on, .off_ms = 300, .pause_ms = 1500, .again = 1});
}

void light_mode(struct light *l, uint32_t mode)
{
    show(l, (struct light){.blinks = (uint8_t)(mode + 1), .on_ms = 50, .off_ms = 250});
}

void light_error(struct light *l)
{
    show(l, (struct light){.blinks = 20, .on_ms = 50, .off_ms = 50});
}

void light_question(struct light *l)
{
    show(l, (struct light){.blinks = 1, .on_ms = 100, .off_ms = 100, .again = 1});
}

void light_off(struct light *l)
{
    l->blinks = 0;
    board_led(0);
}

void light_tick(struct light *l)
{
    if (l->blinks == 0) {
        return;
    }
    uint32_t blink_ms = (uint32_t)l->on_ms + l->off_ms, blinks_ms = l->blinks * blink_ms;
    uint32_t period_ms = blinks_ms + l->pause_ms, passed_ms = board_millis() - l->start_ms;
    if (passed_ms >= period_ms && !l->again) {
        light_off(l);
        return;
    }
    passed_ms %= period_ms;
    board_led(passed_ms < blinks_ms && passed_ms % blink_ms < l->on_ms);
}
