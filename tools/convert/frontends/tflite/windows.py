"""Windows of TFLite's convolutions and poolings: options of an operator as PyTorch's arguments."""

from __future__ import annotations

from microtrain.convert.ir import ConvertError

from .file import Operator

Sizes = tuple[int, ...]
SAME = 0  # Padding of the schema


class Sides:
    """A window as torch takes it, of an operator's options.

    x       what the operator reads, as the file has it: [n, h, w, c]
    turned  height and width are exchanged
    """

    def __init__(self, op: Operator, x: Sizes, kernel: tuple[int, ...], turned: bool, *dilation: str) -> None:
        spread = [int(op.options[name]) for name in dilation] or [1, 1]
        sides = [
            (int(size), int(op.options[stride]), more)
            for size, stride, more in zip(kernel, ("StrideH", "StrideW"), spread, strict=True)
        ]
        sides = sides[::-1] if turned else sides
        self.kernel, self.stride, self.dilation = ([side[i] for side in sides] for i in range(3))
        pads = [(0, 0), (0, 0)]
        if op.options["Padding"] == SAME:
            pads = [same(size, *side) for size, side in zip(sides_of(x, turned), sides, strict=True)]
        self.padding = [pads[0][0], pads[1][0], pads[0][1], pads[1][1]]


def sides_of(x: Sizes, turned: bool) -> tuple[int, int]:
    """Rows and columns of a map [n, h, w, c]; turned: exchanged."""
    return (x[2], x[1]) if turned else (x[1], x[2])


def same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding before and after by TFLite's rule: outputs for every stride, the odd pixel at the end."""
    if stride < 1:
        raise ConvertError(f"a stride of {stride}; 1 is the least")
    outputs = -(-size // stride)
    total = max((outputs - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2
