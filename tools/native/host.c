/* A generated model on this machine: model.c, an image at once, and the two halves of its forward pass one by one. */
#include <string.h>

#include "model.c"

void host_take(const int8_t *rows, uint32_t count, uint32_t bytes)
{
    for (; count; count--, rows += bytes) {
        memcpy(model_row(), rows, bytes);
        model_take_row();
    }
}

void host_front(void)
{
    forward_front();
}

void host_rest(int train)
{
    forward_rest(train);
}
