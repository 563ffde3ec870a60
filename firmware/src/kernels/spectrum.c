/* SPDX-License-Identifier: Apache-2.0 */
/* The spectrum of a frame. Contract: spectrum.h, kernels/log_mel.h. */
#include "spectrum.h"

#include "chip.h"

enum {
    WINDOW_SHIFT = 16,
    ENERGY_BITS = 30,
    HALF_ROOT = 23170, /* sqrt(1/2), 2^15 is 1 */
    RADIX_MOST = 8
};

uint32_t spectrum_bytes(const struct log_mel *p)
{
    return 4u * p->fft;
}

#if KERNELS_DSP

/* spectrum_armv7em.S */
uint64_t spectrum_energy(const int16_t *x, uint32_t words);

#else

static uint64_t spectrum_energy(const int16_t *x, uint32_t words)
{
    uint64_t energy = 0;
    for (const int16_t *end = x + 2 * words; x != end; x++) {
        energy += (uint32_t)(*x * *x);
    }
    return energy;
}

#endif

/* How far the frame is shifted left. */
static int32_t shift_of(const struct log_mel *p, const int16_t *x)
{
    uint64_t energy = spectrum_energy(x, p->frame / 2u);
    int32_t bits = energy ? 64 - __builtin_clzll(energy) : 0, shift = (ENERGY_BITS - bits) >> 1;
    return shift < p->shift_most ? shift : p->shift_most;
}

struct wide {
    int32_t re, im;
};

static struct wide plus(struct wide a, struct wide b)
{
    return (struct wide){a.re + b.re, a.im + b.im};
}

static struct wide minus(struct wide a, struct wide b)
{
    return (struct wide){a.re - b.re, a.im - b.im};
}

/* -i z */
static struct wide turned_back(struct wide z)
{
    return (struct wide){z.im, -z.re};
}

static struct wide wide_of(struct complex z)
{
    return (struct wide){z.re, z.im};
}

/* The DFT of four numbers in place. */
static void radix4(struct wide *z)
{
    struct wide s0 = plus(z[0], z[2]), s1 = minus(z[0], z[2]), s2 = plus(z[1], z[3]),
                s3 = turned_back(minus(z[1], z[3]));
    z[0] = plus(s0, s2);
    z[1] = plus(s1, s3);
    z[2] = minus(s0, s2);
    z[3] = minus(s1, s3);
}

#if KERNELS_DSP

/* spectrum_armv7em.S */
void spectrum_open8(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part);
void spectrum_open4(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part);
void spectrum_join(struct complex *z, const struct complex *last, uint32_t quarter, const uint32_t *twiddles);
void spectrum_close(const struct complex *z, int32_t *power, uint32_t quarter, const uint16_t *order,
                    const int32_t *circle);

#else

static struct complex half(struct wide z)
{
    return (struct complex){(int16_t)(z.re >> 1), (int16_t)(z.im >> 1)};
}

/* Half of z * w, rounded. w: its real part below */
static struct complex times(struct wide z, uint32_t w)
{
    int32_t re = (int16_t)w, im = (int16_t)(w >> 16);
    return (struct complex){(int16_t)((z.re * re - z.im * im + 0x8000) >> 16),
                            (int16_t)((z.re * im + z.im * re + 0x8000) >> 16)};
}

static void radix8(struct wide *z)
{
    struct wide even[4], odd[4];
    for (uint32_t k = 0; k < 4; k++) {
        even[k] = plus(z[k], z[k + 4]);
        odd[k] = minus(z[k], z[k + 4]);
    }
    odd[1] = wide_of(times(plus(odd[1], odd[1]), pack_halves(HALF_ROOT, -HALF_ROOT)));
    odd[2] = turned_back(odd[2]);
    odd[3] = wide_of(times(plus(odd[3], odd[3]), pack_halves(-HALF_ROOT, -HALF_ROOT)));
    radix4(even);
    radix4(odd);
    for (uint32_t k = 0; k < 4; k++) {
        z[2 * k] = even[k];
        z[2 * k + 1] = odd[k];
    }
}

/* Window, of the first pair at the end, and the first stage. order: in which it leaves its numbers */
static void open(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part,
                 const uint8_t *order, uint32_t radix)
{
    for (uint32_t i = 0; i < part; i++) {
        struct wide v[RADIX_MOST];
        for (uint32_t pair = 1; pair <= radix; pair++) {
            uint32_t k = pair % radix;
            const int16_t *at = x + 2 * (i + k * part);
            uint32_t w = *opening++;
            v[k] = (struct wide){at[0] * (int16_t)w >> shift, at[1] * (int16_t)(w >> 16) >> shift};
        }
        if (radix == 8) {
            radix8(v);
        } else {
            radix4(v);
        }
        z[i] = half(v[0]);
        for (uint32_t k = 0; k < radix - 1; k++) {
            z[i + order[k] * part] = times(v[order[k]], *opening++);
        }
    }
}

static void spectrum_open8(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part)
{
    static const uint8_t order[] = {2, 4, 6, 1, 3, 5, 7};
    open(x, opening, shift, z, part, order, 8);
}

static void spectrum_open4(const int16_t *x, const uint32_t *opening, uint32_t shift, struct complex *z, uint32_t part)
{
    static const uint8_t order[] = {1, 2, 3};
    open(x, opening, shift, z, part, order, 4);
}

/* A stage between the first and the last: all transforms up to `last`, of 4 quarters each. */
static void spectrum_join(struct complex *z, const struct complex *last, uint32_t quarter, const uint32_t *twiddles)
{
    for (uint32_t i = 0; i < quarter; i++) {
        for (struct complex *at = z + i; at < last; at += 4 * quarter) {
            struct wide v[4];
            for (uint32_t k = 0; k < 4; k++) {
                v[k] = wide_of(at[k * quarter]);
            }
            radix4(v);
            at[0] = half(v[0]);
            for (uint32_t k = 1; k < 4; k++) {
                at[k * quarter] = i ? times(v[k], twiddles[3 * i - 4 + k]) : half(v[k]);
            }
        }
    }
}

#endif

static int32_t top(int32_t a, int32_t b)
{
    return (int32_t)((int64_t)a * b >> 32);
}

/* The powers of the real spectrum's k and n - k, from the numbers of the same names. circle: cos and half of sin */
static void split(struct wide z, struct wide other, const int32_t *circle, int32_t *power, int32_t *other_power)
{
    int32_t own = z.re * z.re + z.im * z.im, others = other.re * other.re + other.im * other.im;
    int32_t apart = top(z.re * other.im + z.im * other.re, circle[0]) + top(others - own, circle[1]);
    int32_t both = (own + others) >> 2;
    *power = both + apart;
    *other_power = both - apart;
}

#if !KERNELS_DSP

/* The last stage, and the powers of all k but multiples of `quarter`. */
static void spectrum_close(const struct complex *z, int32_t *power, uint32_t quarter, const uint16_t *order,
                           const int32_t *circle)
{
    for (uint32_t m = 1; m <= quarter / 2; m++, order += 2) {
        struct wide a[4], b[4];
        for (uint32_t k = 0; k < 4; k++) {
            a[k] = wide_of(z[order[0] / sizeof *z + k]);
            b[k] = wide_of(z[order[1] / sizeof *z + k]);
        }
        radix4(a);
        radix4(b);
        for (uint32_t k = 0; k < 4; k++, circle += 2) {
            split(a[k], b[3 - k], circle, power + m + k * quarter, power + (4 - k) * quarter - m);
        }
    }
}

#endif

/* The powers of multiples of `quarter`. */
static void close_first(const struct complex *z, int32_t *power, uint32_t quarter)
{
    static const int32_t eighth[2] = {1518500250, 759250125}, fourth[2] = {0, 1 << 30};
    struct wide v[4] = {wide_of(z[0]), wide_of(z[1]), wide_of(z[2]), wide_of(z[3])};
    radix4(v);
    split(v[2], v[2], fourth, power + 2 * quarter, power + 2 * quarter);
    split(v[1], v[3], eighth, power + quarter, power + 3 * quarter);
}

const int32_t *spectrum_of(const struct log_mel *p, const int16_t *x, void *memory, int32_t *shift)
{
    struct complex *z = memory;
    uint32_t n = p->fft / 2u, eight = (uint32_t)__builtin_ctz(n) & 1u, part = n >> (2 + eight);
    const uint32_t *twiddles = p->twiddles;
    int32_t *power = (int32_t *)(void *)(z + n);
    *shift = shift_of(p, x);
    (eight ? spectrum_open8 : spectrum_open4)(x, p->opening, (uint32_t)(WINDOW_SHIFT - *shift), z, part);
    for (uint32_t quarter = part / 4; quarter > 1; quarter /= 4) {
        spectrum_join(z, z + n, quarter, twiddles);
        twiddles += 3 * (quarter - 1);
    }
    spectrum_close(z, power, n / 4, p->order, p->circle);
    close_first(z, power, n / 4);
    return power;
}
