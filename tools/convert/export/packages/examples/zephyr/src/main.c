/* The device learns to tell apart what a made-up sensor sees. Put yours into sense(). */
#include <zephyr/kernel.h>

#include "{{model}}.h"

enum { STEPS = 120, LOOKS = 40, KINDS = {{MODEL}}_CLASSES < 4 ? {{MODEL}}_CLASSES : 4 };

static struct microtrain device;
static uint64_t arena[{{MODEL}}_ARENA_BYTES / 8 + 1], learned[{{MODEL}}_TRAINABLE_BYTES / 8 + 1];
static uint8_t frame[{{MODEL}}_INPUT_BYTES];
static uint32_t noise = 1;

/* Stripes, as wide as the class is large, in noise: values 0..255. */
static void sense(uint32_t label)
{
    for (uint32_t i = 0; i < sizeof frame; i++) {
        uint32_t stripe = i / {{MODEL}}_CHANNELS % {{MODEL}}_WIDTH / (label + 1u) % 2u;
        noise = noise * 1664525u + 1013904223u;
        frame[i] = (uint8_t)(128u * stripe + (noise >> 25));
    }
}

/* How many of LOOKS inputs are told to be what they are. */
static int right(void)
{
    int found = 0;
    for (uint32_t n = 0; n < LOOKS; n++) {
        uint32_t label = KINDS;
        sense(n % KINDS);
        microtrain_feed(&device, frame);
        microtrain_predict(&device, NULL, &label);
        found += label == n % KINDS;
    }
    return found;
}

/* FNV-1a of what was learned: the same on every core. */
static uint32_t hash(void)
{
    const uint8_t *bytes = (const uint8_t *)learned;
    uint32_t found = 2166136261u;
    for (uint32_t i = 0; i < {{MODEL}}_TRAINABLE_BYTES; i++) {
        found = (found ^ bytes[i]) * 16777619u;
    }
    return found;
}

int main(void)
{
    const struct microtrain_memory memory = {arena, sizeof arena, learned, sizeof learned};
    int status = microtrain_init(&device, &{{model}}, &memory);
    printk("right before: %d of %d\n", right(), LOOKS);
    for (uint32_t step = 0; status == MICROTRAIN_OK && step < STEPS; step++) {
        sense(step % KINDS);
        microtrain_feed(&device, frame);
        status = microtrain_train(&device, step % KINDS, NULL);
    }
    printk("right after: %d of %d\n", right(), LOOKS);
    printk("%s, weights %08x\n", microtrain_text(status), (unsigned)hash());
    return 0;
}
