"""What a tensor takes of the arena."""

from __future__ import annotations

from .ir import Tensor

ALIGNMENT = 8


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def parts(tensor: Tensor) -> dict[str, int]:
    """Buffers that a tensor consists of, and their bytes."""
    if tensor.dtype == "error":
        return {tensor.name: tensor.elements, f"{tensor.name}/scale": 4 * tensor.channels}
    if tensor.dtype == "bits":
        return {tensor.name: tensor.pixels * ((tensor.channels + 7) // 8)}
    return {tensor.name: tensor.elements * {"f32": 4, "s8": 1, "u8": 1}[tensor.dtype]}


def tensor_bytes(tensor: Tensor) -> int:
    return sum(align(size) for size in parts(tensor).values())
