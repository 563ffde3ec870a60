"""The C kernels against their NumPy twins: exact, with gcc and clang, and planted faults must be noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kernel_cases
import numpy as np
import pytest
from kernel_cases import CHECKS
from kernel_twins import Split, Twin

from microtrain.base import errors
from microtrain.base.paths import ROOT
from microtrain.convert.ir import Window
from microtrain.convert.ops import conv_structs, host, pool_structs
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.kernels import Clamp, Conv, Error

KERNELS = ROOT / "firmware" / "src" / "kernels"


SIMULATOR = "gcc -O3 -march=native"
CASES, FIRST_CASES = 200, 50  # of a check: gcc and clang alone get the first of the simulator's cases


@pytest.fixture(scope="module", params=["gcc", "clang", SIMULATOR])
def twin(request: pytest.FixtureRequest) -> Twin:
    """The kernels as each compiler makes them; the last as the simulator has them, with AVX2 if there is."""
    compiler, _, flags = request.param.partition(" ")
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    return Twin(host.bound(hostlib.build(compiler, level=flags or "-O2")))


@pytest.mark.parametrize("name", CHECKS)
def test_numpy_equals_c(twin: Twin, name: str, request: pytest.FixtureRequest) -> None:
    simulated = request.node.callspec.params["twin"] == SIMULATOR
    kernel_cases.run(name, twin, CASES if simulated else FIRST_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_numpy_equals_c_in_all_cases(twin: Twin, name: str) -> None:
    kernel_cases.run(name, twin, CASES)


WHOLE = {"small": (5, 4, 7), "two strips": (24, 23, 5), "few": (18, 17, 3)}


@pytest.mark.parametrize("shape", WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.parametrize("outside", [0, 1])
def test_kernels_as_large_as_the_map(twin: Twin, shape: tuple[int, int, int], outside: int) -> None:
    """A hidden linear layer; with padding a kernel that reaches over the map's edges."""
    rng, c_out = np.random.default_rng(outside), 11
    window = Window(shape[0], shape[1], 1, 1, outside, outside)
    side = 1 + 2 * outside
    p = Conv(shape, (side, side, c_out), window, -5, 3, np.full(c_out, 0.001, np.float32), 6)
    ey = Error(rng.integers(-127, 128, p.y, dtype=np.int8), rng.uniform(0.1, 1, c_out).astype(np.float32))
    w = rng.integers(-128, 128, (c_out, *shape), dtype=np.int8)
    clamp = kernel_cases.draw_clamp(rng, shape)
    for split in (Split((), shape[2], True), Split((2, 0), shape[2])):
        got = twin.backward_x("conv2d", p, ey, w, clamp, split)
        kernel_cases.same_error(got, reference.conv2d_bwd_x(p, ey, w, clamp))
    largest = twin.lib.conv2d_bwd_x_scratch(conv_structs.conv2d_struct(shape, p.y, window, 0, 0, 6))
    assert largest <= 4 * 6 * 256 + 2 * 6 * 12 + 24


LARGE = {"conv": (24, 23, 5), "strips": (33, 32, 3), "four": (17, 20, 9), "two": (23, 24, 5)}


@pytest.mark.parametrize("shape", LARGE.values(), ids=LARGE.keys())
@pytest.mark.parametrize("window", [Window(1, 1), Window(3, 3, 1, 1, 1, 1)], ids=["pointwise", "3x3"])
@pytest.mark.parametrize("op", ["conv2d", "dwconv2d"])
def test_images_of_several_strips(twin: Twin, op: str, window: Window, shape: tuple[int, int, int]) -> None:
    """Images beyond every size at which a kernel changes its way of working."""
    rng = np.random.default_rng(7)
    p = Conv(shape, shape, window, -5, 3, np.full(shape[2], 0.001, np.float32), 6)
    ey, clamp = kernel_cases.draw_error(rng, shape), kernel_cases.draw_clamp(rng, shape)
    ey = Error(rng.integers(-127, 128, shape, dtype=np.int8), np.abs(ey.scale) + np.float32(1e-3))
    weights = (shape[2], window.kh, window.kw, shape[2])[: 4 if op == "conv2d" else 3]
    w = rng.integers(-127, 128, weights, dtype=np.int8)
    got = twin.backward_x(op, p, ey, w, clamp, Split((), shape[2], True))
    kernel_cases.same_error(got, getattr(reference, f"{op}_bwd_x")(p, ey, w, clamp))
    x, sgd = kernel_cases.draw_s8(rng, shape), kernel_cases.draw_sgd(rng)
    trained = kernel_cases.draw_trained(rng, weights, ey.scale * np.float32(sgd.lr_weight * 2e5))
    channels = np.arange(shape[2], dtype=np.uint16)
    depthwise = (channels,) if op == "dwconv2d" else ()
    step = twin.backward_w(op, p, ey, x, None, channels if depthwise else None, trained, sgd)
    want = getattr(reference, f"{op}_bwd_w")(p, ey, x, *depthwise, trained, sgd)
    np.testing.assert_array_equal(step.w, want.w)
    assert not np.array_equal(step.w, trained.w)


def test_a_live_channel_of_an_error_reaches_127() -> None:
    rng = np.random.default_rng(3)
    sums = rng.integers(-(2**30), 2**30, (5, 4, 200)) >> rng.integers(0, 31, 200)
    error = reference.quantize_error(sums, 1.0, Clamp())
    peak = np.abs(error.q.astype(int)).max(axis=(0, 1))
    assert set(peak[error.scale > 0]) == {127}
    assert set(peak[error.scale == 0]) <= {0}
    np.testing.assert_allclose(error.gradient, sums, atol=np.abs(sums).max() / 250)


def test_a_channel_that_is_masked_away_has_no_gradient(twin: Twin) -> None:
    p = Conv((2, 2, 3), (2, 2, 3), Window(1, 1), 0, 0, np.ones(3, np.float32))
    ey = Error(np.full((2, 2, 3), 127, np.int8), np.ones(3, np.float32))
    mask = np.zeros((2, 2, 3), bool)
    mask[:, :, 1] = True
    ex = twin.backward_x(
        "conv2d", p, ey, np.full((3, 1, 1, 3), 127, np.int8), Clamp(mask), Split((), 3, True)
    )
    assert ex.scale[0] == ex.scale[2] == 0 < ex.scale[1]
    assert not ex.q[:, :, [0, 2]].any()


def test_stochastic_rounding_is_unbiased() -> None:
    """A step of 0.3 units moves 30 % of the weights by one, whichever way it goes."""
    p = Conv((1, 1, 5000), (1, 1, 2), Window(1, 1), 0, 0, np.ones(2, np.float32))
    ey = Error(np.array([[[1, -1]]], np.int8), np.ones(2, np.float32))
    w = reference.Trained(np.zeros((2, 1, 1, 5000), np.int8), None, 0, np.full(2, 65536, np.float32), 5)
    sgd = reference.Sgd(0.3, 0, 0, 1, 2)
    moved = reference.conv2d_bwd_w(p, ey, np.ones((1, 1, 5000), np.int8), w, sgd).w.astype(int)
    assert -0.33 < moved[0].mean() < -0.27
    assert 0.27 < moved[1].mean() < 0.33


@pytest.mark.parametrize("name", ["exp_f32", "log_f32"])
def test_exp_and_log_are_accurate(name: str) -> None:
    """Within 2 units in the last place of the float64 result."""
    if name == "exp_f32":
        x = np.linspace(-86.9, 0, 200001).astype(np.float32)
        got, want = reference.exp_f32(x), np.exp(x.astype(np.float64))
    else:
        x = np.concatenate([np.geomspace(2e-38, 3e38, 100001), np.linspace(0.5, 2, 100001)]).astype(
            np.float32
        )
        got, want = reference.log_f32(x), np.log(x.astype(np.float64))
    unit = np.spacing(np.abs(want).astype(np.float32))
    assert (np.abs(got.astype(np.float64) - want) < 2 * unit).all()
    assert reference.exp_f32(np.float32(0)) == 1
    assert reference.log_f32(np.float32(1)) == 0


# Faults: file, text, what stands there instead, the check that must notice. Each breaks one promise.
FAULTS: dict[str, tuple[str, str, str, str]] = {
    "errors of another group": (
        "grouped.c",
        "col.ey = ey->q + g * shape.outputs",
        "col.ey = ey->q + 0 * g",
        "gconv2d_bwd_x",
    ),
    "taps side by side": ("grouped.c", "at += s->dilation_w, bytes", "at += 1, bytes", "gconv2d_fwd"),
    "a gradient under another tap": (
        "grouped.c",
        "tap % shape.taps_w * s->dilation_w",
        "tap % shape.taps_w",
        "gconv2d_bwd_w",
    ),
    "pairs turned round": ("coded.c", "| (uint32_t)pairs[(word >> 6) & 1023u] << 16", "| 0u", "cconv2d_fwd"),
    "rows of another block": ("coded.c", "c->w->codes + o * (", "c->w->codes + 0 * o * (", "cconv2d_fwd"),
    "rows of even length alone": ("coded.c", "n--, row += k)", "n--, row += k & ~1u)", "codes_expand"),
    "a mask of the first block alone": (
        "coded.c",
        "mask_stride(p->c_out) + o / 8",
        "mask_stride(p->c_out)",
        "cconv2d_fwd",
    ),
    "columns from the first on": ("coded_bwd_x.c", "+ col->at.first;", ";", "cconv2d_bwd_x"),
    "the first of an odd pair": ("coded_bwd_x.c", "i++) >> 8)", "i++))", "cconv2d_bwd_x"),
    "codes that know no state": ("coded.c", "state = word >> 30;", "state = 0;", "codes_expand"),
    "columns that know no state": (
        "coded_bwd_x.c",
        "row[i - 1] >> 6 : 0",
        "row[i - 1] >> 8 : 0",
        "cconv2d_bwd_x",
    ),
    "usual columns that know no state": (
        "coded_bwd_x.c",
        "word >> 14) & 1023u",
        "word >> 14) & 1020u",
        "cconv2d_bwd_x",
    ),
    "coefficients of half the size": ("mfcc.c", ">> DCT_SHIFT)", ">> (DCT_SHIFT + 1))", "mfcc"),
    "levels from the floor": ("log_mel.c", "(base + mid)", "(base + 0 * mid)", "mfcc"),
    "gravity is a vibration": ("vibration.c", "- (int64_t)sum * sum", "- 0 * sum", "vibration"),
    "an octave less of a strong one": (
        "log_mel.c",
        "(63 - (int32_t)zeros)",
        "(62 - (int32_t)zeros)",
        "vibration",
    ),
    "a quiet frame stays quiet": ("spectrum.c", "(ENERGY_BITS - bits) >> 1", "0 * bits", "log_mel"),
    "the halves of a spectrum change places": ("spectrum.c", "both + apart", "both - apart", "log_mel"),
    "no turn by a quarter": ("spectrum.c", "odd[2] = turned_back(odd[2]);", "", "log_mel"),
    "a logarithm in octaves": ("log_mel.c", "steps[(v << zeros >> 24) - LOG_STEPS]", "steps[0]", "log_mel"),
    "frames do not overlap": ("log_mel.c", "frame + p->hop)", "frame)", "log_mel"),
    "forward ignores x_zero": (
        "dense.c",
        "(int16_t)(row[k] - zero)",
        "(int16_t)(row[k] + 0 * zero)",
        "conv2d_fwd",
    ),
    "padding is 0": ("fields.c", "fill_bytes(bytes, p->x_zero, ", "fill_bytes(bytes, 0, ", "conv2d_fwd"),
    "requantization truncates": ("chip.h", "(int32_t)rintf(clampf(v", "(int32_t)(clampf(v", "conv2d_fwd"),
    "inputs read behind their outputs": ("conv2d.c", "at.first * in < i * out", "in < 0 * out", "conv2d_fwd"),
    "mask says all pass": ("conv2d.c", "v == q ? bit : 0", "v != q + 9999 ? bit : 0", "conv2d_fwd"),
    "the last errors are not looked at": (
        "conv2d_bwd_x.c",
        "n = (input_pixels(p) - 1) * c;",
        "n = ((input_pixels(p) - 1) * c) & ~3u;",
        "conv2d_bwd_x_of_equal_rows",
    ),
    "no common scale": ("conv2d_bwd_x.c", "scale[o] / largest * one", "one", "conv2d_bwd_x"),
    "sign of dX": ("dense.c", "(r ? r[k] : 1)", "(r ? -r[k] : 1)", "conv2d_bwd_x"),
    "dX of a tile that another tap left": (
        "conv2d_bwd_x.c",
        "packed = 0;",
        "packed = ky + kx;",
        "conv2d_bwd_x",
    ),
    "dX ignores the stride": ("conv2d_bwd_x.c", "sums += stride * lanes", "sums += lanes", "conv2d_bwd_x"),
    "dW ignores x_zero": ("conv2d_update.c", "d->x_zero * sums[", "0 * sums[", "conv2d_bwd_w"),
    "update truncates": (
        "update.h",
        "(int32_t)noise) >> shift",
        "0 * (int32_t)noise) / (1 << shift)",
        "conv2d_bwd_w",
    ),
    "update wraps": ("update.h", "value > limit ? limit : ", "", "conv2d_bwd_w"),
    "another random number": (
        "update.h",
        "noise >> 16, bits",
        "noise & 0xffffu, bits",
        "conv2d_bwd_w",
    ),
    "fraction unsigned": ("update.h", "(nibble ^ 8u) - 8", "nibble", "conv2d_bwd_w"),
    "mask of depthwise says all pass": (
        "dwconv2d.c",
        "v == q ? bit : 0u",
        "v != q + 9999 ? bit : 0u",
        "dwconv2d_fwd",
    ),
    "trained channels taken for frozen": (
        "conv2d_bwd_x.c",
        "w->order ? w->order + frozen : NULL, &to",
        "w->order ? w->order : NULL, &to",
        "conv2d_bwd_x",
    ),
    "columns of another span": (
        "conv2d_bwd_x.c",
        "= w + col->at.first;",
        "= w + 0 * col->at.first;",
        "conv2d_bwd_x",
    ),
    "pixels of another span": ("conv2d.c", "x + at->first * p->c_in", "x", "conv2d_fwd"),
    "bias has no bound": ("conv2d_update.c", "delta > most ? most", "delta > most + 9 ? most", "bias_update"),
    "bias in another unit": ("conv2d_update.c", "UNIT_EXPONENT = 118", "UNIT_EXPONENT = 119", "bias_update"),
    "lean biases in another unit": ("conv2d_update.c", "LEAN_SHIFT = 2", "LEAN_SHIFT = 3", "bias_update"),
    "dead channels that learn": ("conv2d_update.c", "0x1p-10f", "0x1p-11f", "bias_update"),
    "scaling in another unit": (
        "conv2d_update.c",
        "float_of((127 - bias",
        "float_of((126 - bias",
        "bias_update",
    ),
    "gather forgets the index": ("conv2d_update.c", "x[index[i]]", "x[index[0] + i]", "gather"),
    "depthwise ignores x_zero": (
        "planes.c",
        "(int16_t)(*from - zero)",
        "(int16_t)(*from + 0 * zero)",
        "dwconv2d_fwd",
    ),
    "taps not flipped": ("planes.c", "v->flip ? w[n - 1 - i] : w[i]", "w[i]", "dwconv2d_bwd_x"),
    "depthwise dW of another channel": (
        "dwconv2d_update.c",
        "ey->q + ch, &v",
        "ey->q, &v",
        "dwconv2d_bwd_w",
    ),
    "mask not applied": ("channel.h", "sum & ((int32_t)", "sum | 0 * ((int32_t)", "conv2d_bwd_x"),
    "m not applied": ("channel.h", "unit * multiplier_f32(", "unit + 0 * multiplier_f32(", "conv2d_bwd_x"),
    "residual gradient dropped": (
        "elementwise.c",
        "+ (float)pair->b[at] * pair->b_unit",
        "+ 0.0f * (float)pair->b[at] * pair->b_unit",
        "error_add",
    ),
    "add ignores a zero point": ("elementwise.c", "(b - p->b_zero)", "(b - p->a_zero)", "add_fwd"),
    "factor not applied": (
        "elementwise.c",
        "in->scale[ch] * factor",
        "in->scale[ch] + 0 * factor",
        "error_pass",
    ),
    "slope of another value": ("lookup.c", "p->slope[*x + 128]", "p->slope[*x + 127]", "lookup"),
    "a unit without the scales": ("lookup.c", "ey->scale[i] * p->unit", "ey->scale[i]", "lookup"),
    "factor of another channel": (
        "scale.c",
        "x, s + ch * step.channel, step",
        "x, s, step",
        "scale_channels",
    ),
    "factor ignores its zero": ("scale.c", "s_zero, {1, 0}}", "s_zero * 0, {1, 0}}", "scale_channels"),
    "blocks of one row": ("upsample.c", "ey += row", "ey += row - 1", "upsample"),
    "pixels of the next block": ("upsample.c", "ey += across * c", "ey += c", "upsample"),
    "scale of another channel": ("unflatten.c", "ey->scale[i]", "ey->scale[0]", "unflatten"),
    "scales where they are still read": (
        "unflatten.c",
        "from = c; from;) { /* the first scales last: they may lie where those of ey do */"
        "\n        from -= made;",
        "next = 0; next < c;) {\n        uint32_t from = next;\n        next += made;",
        "unflatten",
    ),
    "mask of the first pixel alone": (
        "unflatten.c",
        "channel_passes(&to, pixel)",
        "channel_passes(&to, 0)",
        "unflatten",
    ),
    "map of another pixel": (
        "scale.c",
        "(struct factor_steps){1, c}, y",
        "(struct factor_steps){1, 0}, y",
        "multiply_maps",
    ),
    "factor of another pixel": (
        "scale.c",
        "(struct factor_steps){0, 1}, y",
        "(struct factor_steps){1, 0}, y",
        "scale_pixels",
    ),
    "errors by another pixel's factor": (
        "scale.c",
        "p->s_zero, {0, 1}}",
        "p->s_zero, {1, 0}}",
        "scale_pixels",
    ),
    "channels of one scale": (
        "scale.c",
        "(x[i] - zero)) * scale[i]",
        "(x[i] - zero)) * scale[0]",
        "scale_pixels",
    ),
    "a sum of factors that is not masked": (
        "scale.c",
        "channel_passes(ch, pixel) ? larger_magnitude_f32(peak, sum) : peak",
        "larger_magnitude_f32(peak, sum)",
        "scale_pixels",
    ),
    "the last channel of equals": ("channel_pool.c", "x[i] > x[at]", "x[i] >= x[at]", "channel_max"),
    "to all channels alike": (
        "channel_pool.c",
        "arg[pixel] == i) ? channel_q",
        "arg[pixel] <= i) ? channel_q",
        "channel_max",
    ),
    "a mean of one channel less": (
        "channel_pool.c",
        "(float)sum / (float)c",
        "(float)sum / (float)(c - 1)",
        "channel_mean",
    ),
    "shares of a whole": ("channel_pool.c", "ey->scale[0] / (float)c", "ey->scale[0]", "channel_mean"),
    "terms of the place before": ("resample.c", "terms + 1 + 2 * terms[0]", "terms + 1", "resample"),
    "weights of the row alone": ("resample.c", "row[1] * column[2 * j + 1])", "row[1])", "resample"),
    "a mixture ignores the zero": ("resample.c", "from[k] - zero", "from[k] - 0 * zero", "resample"),
    "no zeros around": ("resample.c", "memset(y, p->zero, p->c)", "memset(y, 0, p->c)", "resample"),
    "a mixture is not divided": ("resample.c", "ey->scale[i] * p->unit", "ey->scale[i]", "resample"),
    "zero of the other map": ("scale.c", "other_is_x ? p->x_zero", "other_is_x ? p->s_zero", "multiply_maps"),
    "a variance without its mean": (
        "normalise.c",
        "above - (uint64_t)((int64_t)sum * sum)",
        "above",
        "normalise",
    ),
    "an error whose slope stays": (
        "normalise.c",
        "- (float)d * cell->slope",
        "+ (float)d * cell->slope",
        "normalise",
    ),
    "a pixel's mean for all": ("normalise.c", "p->apart ? p->groups : 0", "0", "normalise"),
    "attention without the zero of its values": (
        "attention.c",
        "gather(p, &row, share, 2, p->x_zero, sums)",
        "gather(p, &row, share, 2, 0, sums)",
        "attention",
    ),
    "shares of another octave": ("attention.c", ">> whole : 0", ">> (whole + 1) : 0", "attention"),
    "a gradient that forgets its mean": (
        "attention.c",
        "forward[j] - mean)",
        "forward[j] + mean)",
        "attention",
    ),
    "keys of another phase": ("attention.c", "pixel % p->w % p->step_w", "0", "attention"),
    "a first token without its constant": (
        "position.c",
        "before.pixels = p->lead",
        "before.pixels = 0",
        "position",
    ),
    "a gate of the row before": (
        "recurrent.c",
        "p->b + 4 * unit",
        "p->b + 4 * (unit ? unit - 1 : 0)",
        "recurrent",
    ),
    "a state that a unit sees too early": (
        "recurrent.c",
        "next[at] = (int16_t)made",
        "h[at] = next[at] = (int16_t)made",
        "recurrent",
    ),
    "a cell that forgets nothing": (
        "recurrent.c",
        "logistic(a[1]) * *cell",
        "(ONE - 1) * *cell",
        "recurrent",
    ),
    "a cell that is cut off nowhere": (
        "recurrent.c",
        "made > most ? most",
        "made > most ? made",
        "recurrent",
    ),
    "a cell of another range": (
        "recurrent.c",
        "tangent16(*cell, (uint32_t)bits)",
        "tangent16(*cell, 3)",
        "recurrent",
    ),
    "a state of the output's zero point": (
        "recurrent.c",
        "saturate8(out + zero) -",
        "saturate8(out + zero) - zero + 0 *",
        "recurrent",
    ),
    "an exponential without its last powers": (
        "fixed_point.h",
        "i < 7 && i < bits + 2",
        "i < bits",
        "recurrent",
    ),
    "a tangent that rounds down": ("fixed_point.h", "(v + (v >> 31) + ", "(v + ", "recurrent"),
    "errors of the first tokens": ("position.c", "ey->q + p->lead * p->add.c", "ey->q", "position"),
    "a product that is not rounded": ("mul_add.c", "q * (1 << 20)", "v * (1 << 20)", "mul_add"),
    "a term that rounds half up": ("requantize.h", "t + (t >> 31) +", "t +", "mul_add"),
    "a term of the other scale": (
        "mul_add.c",
        "return p->term_by ? TERM :",
        "return p->term_by < 2 ? TERM :",
        "mul_add",
    ),
    "a mask of the sum alone": ("mul_add.c", "passes &= v", "passes = v", "mul_add"),
    "gradient of one pixel": ("scale.c", "sum += ey", "sum = ey", "scale_channels"),
    "a map over its neighbour": ("channels.c", "y[copy.from + i]", "y[i]", "concat"),
    "bit of another channel": ("channels.c", "put_bit(mask, copy.from + i", "put_bit(mask, i", "concat"),
    "bits beside it are lost": ("channels.c", "(mask[i >> 3] & ~(1u << at))", "0u", "concat"),
    "error of another channel": ("channels.c", "ey->q[pixel * c + from]", "ey->q[pixel * c]", "error_take"),
    "error of no channel": ("channels.c", "there = from != NO_CHANNEL", "there = 1", "error_take"),
    "average ignores padding": ("pool.c", "(taps - seen) * p->x_zero", "0 * (taps - seen)", "avgpool"),
    "a window of a byte": ("pool.c", "taps = p->kh * p->kw", "taps = (uint8_t)p->kh * p->kw", "avgpool"),
    "last of equals": ("pool.c", "at = v > best", "at = v >= best", "maxpool"),
    "head ignores x_zero": ("head.c", "(x - p->x_zero)", "(x)", "head"),
    "a prototype of one more": ("prototypes.c", "1.0f / count,", "1.0f / (count + 1.0f),", "prototypes"),
    "a prototype is as sure of few": ("prototypes.c", "count / (count + 1.0f) * sum", "sum", "prototypes"),
    "an embedding is twice as long": ("prototypes.c", "? inverse_of(", "? 2.0f * inverse_of(", "prototypes"),
    "the length of an embedding learns": ("prototypes.c", "s[i] - value(e, i) * along", "s[i]", "prototypes"),
    "a threshold beyond others": ("prototypes.c", "NEAR * far", "far", "prototypes"),
    "a threshold beyond what is own": (
        "prototypes.c",
        "mean + DEVIATIONS * off",
        "mean + 4.0f * off",
        "prototypes",
    ),
    "the nearest other is its own": ("prototypes.c", "k != label && ", "", "prototypes"),
    "a sample counts for another class": ("prototypes.c", "(label - 1) * (e.n + 1)", "0", "prototypes"),
    "the first sample has a gradient": ("prototypes.c", "grad[k] = 0.0f", "grad[k] = 1.0f", "prototypes"),
    "loss of another class": ("head.c", "logits[label] - top", "logits[0] - top", "losses"),
    "up and down swapped": ("regression.c", "*down = gradient / unit", "*down = gradient * unit", "targets"),
    "Huber without its corner": ("regression.c", "size - 0.5f", "size - 0.4f", "targets"),
    "another label's target": ("multilabel.c", "p - target[k]", "p - target[0]", "targets"),
    "a step that is no number": (
        "update.h",
        "round_step(step)",
        "(int32_t)rintf(clampf(step, -2147418112.0f, 2147418112.0f))",
        "overflow_of_errors",
    ),
    "a peak that is no number": (
        "channel.h",
        "magnitude > peak ? magnitude : peak;\n}\n\n/* What turns",
        "magnitude <= peak ? peak : magnitude;\n}\n\n/* What turns",
        "overflow_of_errors",
    ),
    "what is no number keeps its sign": ("head.c", "kept_f32(*w - ", "(*w - ", "overflow_of_the_head"),
    "exp off by one unit": ("numeric.c", "y = y + 1.0f;", "y = y + 0x1.000002p+0f;", "exp_log"),
    "statistics ignore x_zero": ("imprint.c", "int32_t q = x[i] - p->x_zero", "int32_t q = x[i]", "imprint"),
    "a sample counts twice": ("imprint.c", "counts[label]++", "counts[label] += 2", "imprint"),
    "a sum of another class": ("imprint.c", "sums += label * features", "sums += 0 * label", "imprint"),
    "a product is another": ("imprint.c", "q * (x[j] - p->x_zero)", "q * (x[i] - p->x_zero)", "imprint"),
    "means are not taken out": (
        "imprint.c",
        "sum - mean_of(s, k, start + i)",
        "sum - 0.0f",
        "imprint",
    ),
    "the last of equals": ("product_code.c", "if (d < least)", "if (d <= least)", "product_code"),
    "differences are not squared": (
        "product_code.c",
        "sum += d * d",
        "sum += d > 0 ? d : -d",
        "product_code",
    ),
    "the last part is as wide as the others": (
        "product_code.c",
        "return left < p->part ? left : p->part;",
        "return left < p->part ? left : left;",
        "product_code",
    ),
    "one book for all parts": (
        "product_code.c",
        "book += PRODUCT_CODE_VECTORS * width;",
        ";",
        "product_code",
    ),
    "no shrinkage": ("imprint.c", "c[-1] = c[-1] + ridge", "c[-1] = c[-1] + 0.0f * ridge", "imprint"),
    "logits as large as they come": ("imprint.c", "IMPRINT_MARGIN / ahead", "1.0f", "imprint"),
    "an unseen class may win": ("imprint.c", "-(farthest * gain) - IMPRINT_MARGIN", "0.0f", "imprint"),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Builds the kernels with one text replaced everywhere in one file; objects of the others are kept."""
    shared = tmp_path_factory.mktemp("objects")

    def build(fault: str) -> Twin:
        file, old, new, _ = FAULTS[fault]
        folder = tmp_path_factory.mktemp("kernels")
        shutil.copytree(KERNELS, folder, dirs_exist_ok=True)
        text = (folder / file).read_text()
        if text.count(old) == 0:
            pytest.fail(f"{file} no longer contains {old!r}: plant the fault elsewhere")
        (folder / file).write_text(text.replace(old, new))
        return Twin(host.bound(hostlib.build(None, folder, shared, "-O0")))

    return build


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(planted: Any, fault: str) -> None:
    twin = planted(fault)  # outside: a fault that cannot be planted must not pass for one that was noticed
    with pytest.raises(AssertionError):
        kernel_cases.run(FAULTS[fault][3], twin, 400)


def test_a_write_outside_is_noticed(twin: Twin) -> None:
    """The canaries work: a gather of one channel too many ends in them."""
    guard = kernel_cases.Guarded()
    y, x = guard.array((2, 2), np.int8), np.ones((2, 3), np.int8)
    twin.lib.gather_s8(2, 3, x, np.arange(3, dtype=np.uint16), 3, y)
    with pytest.raises(AssertionError, match="outside"):
        guard.check()


# ---- the library itself


def test_without_a_compiler_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(errors.Error, match="no C compiler on PATH"):
        hostlib.build(cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_processes_may_build_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from microtrain.convert.ops import host;"
        "from microtrain.convert.reference import hostlib;"
        "print(host.bound(hostlib.build(cache=pathlib.Path(sys.argv[1]))).exp_f32(0.0))"
    )
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen(command, env=path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in both] == ["1.0", "1.0"]
    assert len(list(tmp_path.glob("*.so"))) == 1
    assert {file.suffix for file in tmp_path.iterdir()} == {".so", ".o"}


def test_arrays_are_checked() -> None:
    lib = host.load()
    x, index = np.zeros((2, 4), np.int8), np.zeros(1, np.uint16)
    with pytest.raises(errors.Error, match="argument 3 of gather_s8 must be an array of int8, not int16"):
        lib.gather_s8(2, 4, x.astype(np.int16), index, 1, x)
    with pytest.raises(errors.Error, match="C-contiguous"):
        lib.gather_s8(2, 4, x[:, ::2], index, 1, x)
    with pytest.raises(errors.Error, match=r"Clamp.mask must be an array of uint8, not bool"):
        hostlib.Clamp(mask=np.zeros(1, bool), m=None)
    with pytest.raises(errors.Error, match="takes 6 arguments, not 1"):
        lib.gather_s8(2)
    with pytest.raises(errors.Error, match="has no field zero"):
        pool_structs.Pool(zero=1)


def test_scratch_is_asked_of_the_kernel() -> None:
    p = conv_structs.conv2d_struct((8, 8, 48), (8, 8, 192), Window(1, 1), 0, 0, 8)
    assert hostlib.scratch_bytes("conv2d_fwd", p) == hostlib.scratch_bytes("conv2d_fwd_s8", p) > 0
    assert hostlib.scratch_bytes("conv2d_bwd_w", p, 48) > hostlib.scratch_bytes("conv2d_bwd_w", p, 1) > 0
    assert hostlib.scratch_bytes("add_fwd", p) == 0
    with pytest.raises(errors.Error, match="there is no kernel conv9d"):
        hostlib.scratch_bytes("conv9d", p)
