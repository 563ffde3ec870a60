/* SPDX-License-Identifier: Apache-2.0 */
/* rintf of the C library, which compiled code calls: the Cortex-M7's FPU has an instruction for it, VRINTX, this chip's
 * FPv4 has none. The same bits, NaNs and signs of zeros included: test/test_nucleo.py. */
#include <math.h>

/* From here on every float is a whole number: adding it rounds away what is behind the point, half to even as the FPU is
 * set, and taking it away again loses nothing. */
#define WHOLE 0x1p23f

float rintf(float x)
{
    float size = fabsf(x);
    if (!(size < WHOLE)) {
        return x + 0.0f; /* whole, infinite, or no number */
    }
    return copysignf(size + WHOLE - WHOLE, x);
}
