/* A generated model on this machine: model.c, and the two halves of its forward pass one by one. */
#include "model.c"

void host_front(void)
{
    forward_front();
}

void host_rest(int train)
{
    forward_rest(train);
}
