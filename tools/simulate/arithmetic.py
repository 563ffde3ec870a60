"""What a simulation computes with: the device's own arithmetic, or one to compare it with."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.device.session import SHUFFLED
from microtrain.native.model import HOST, Model

from .blueprint import Blueprint
from .network import Network, load_network

# device         the firmware's C
# float          PyTorch: real errors, float masters (parallel.py)
# device-no-qas  the firmware's C with one constant in the place of quantization-aware scaling
# truncating     the firmware's C, but weights truncate towards zero and wrap, as in the published engine
DEVICE, FLOAT, PLAIN, TRUNCATING = ARITHMETICS = ("device", "float", "device-no-qas", "truncating")
TRUNCATING_H = HOST.parent / "truncating.h"


def flags(arithmetic: str) -> tuple[str, ...]:
    """What the compiler is told more. A name alone makes a library of its own, for adapt() to change."""
    return ("-DPLAIN_SGD",) if arithmetic == PLAIN else ()


def forced(arithmetic: str) -> Path | None:
    """A header that changes the kernels."""
    return TRUNCATING_H if arithmetic == TRUNCATING else None


def check(plan: Blueprint, arithmetic: str) -> None:
    """Error where the plan cannot be trained so."""
    bits = plan.scheme.fraction_bits
    if arithmetic == TRUNCATING and bits:
        raise Error(
            f"truncating weights are int8 alone, but scheme {plan.scheme.name} has {bits} fraction bits: "
            "convert with --fraction-bits 0."
        )


def check_order(arithmetic: str, order: str, records: int) -> None:
    """Error where the images cannot be shown so."""
    if arithmetic == FLOAT and (order != SHUFFLED or records):
        raise Error(
            "--arithmetic float learns from shuffled images and has no replay buffer: "
            "leave --order and --replay out, and pass --records 0."
        )


def adapt(model: Model, plan: Blueprint, arithmetic: str) -> None:
    """Make a loaded library compute so."""
    if arithmetic == PLAIN:
        for symbol, values in plain_tables(load_network(plan.folder, plan.model_id)).items():
            overwrite(model, symbol, values)


def plain_tables(network: Network) -> dict[str, np.ndarray]:
    """The tables of quantization-aware scaling with one constant everywhere, 0 for dead channels, float32.

    Units are those of convert.ops.conv: weights 2^-16, biases 2^-8 of the unit they are trained in.
    """
    factor, tables = network.plain_factor(), {}
    for step in network.steps:
        layer = network.layers.get(step.layer or "")
        if layer is None or layer.head:
            continue
        if layer.trained:
            tables[f"qas_w_{layer.symbol}"] = np.where(layer.dead, 0.0, 65536.0 * factor * layer.rate)
        if layer.bias_trained:
            unit = layer.bias_unit / network.real_bias(step)
            tables[f"qas_b_{layer.symbol}"] = np.where(layer.dead, 0.0, 256.0 / unit * factor)
    return {symbol: values.astype(np.float32) for symbol, values in tables.items()}


def overwrite(model: Model, symbol: str, values: np.ndarray) -> None:
    """Other values in a constant table of a loaded library, in this process alone."""
    try:
        start = ctypes.addressof(ctypes.c_uint8.in_dll(model.lib, symbol))
    except ValueError:
        raise Error(
            f"{symbol} is not in this model, which makes its scaling of multipliers: "
            "for device-no-qas convert with --weights-bits 8."
        ) from None
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    size, writable = start + values.nbytes - first, mmap.PROT_READ | mmap.PROT_WRITE
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(first), ctypes.c_size_t(size), writable):
        raise Error(f"the system does not let table {symbol} be changed: use another arithmetic.")
    ctypes.memmove(start, values.ctypes.data, values.nbytes)
