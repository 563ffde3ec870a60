"""Which architectures are asked about, and what of each must be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from microtrain.base.extras import require

from . import attention, small

Shape = tuple[int, ...]
PHOTO: Shape = (3, 224, 224)
HEAVY = "weights take"
HEAD = "--classes N"
SRAM = "B of SRAM with scheme"
SCORES = "on the scores of attention"
END = "must end with a linear layer"


@dataclass(frozen=True)
class Case:
    """An architecture.

    told  words that its obstacles must have, () where it fits
    onnx  it comes as an ONNX file
    ours  bytes of layers that PyTorch has not: those that turn the maps of a Mixer
    """

    name: str
    make: Callable[[], nn.Module]
    shape: Shape
    told: tuple[str, ...]
    onnx: bool = False
    ours: int = 0


def vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of torchvision, without weights."""

    def made() -> nn.Module:
        model: nn.Module = torchvision().get_model(name, weights=None, **options)
        return model

    return made


def torchvision() -> Any:
    """torchvision.models.

    Its wheel from PyPI is built for CUDA. Beside a torch for CPUs its own ops are missing: no classifier uses
    them, but it wants to see their names.
    """
    require("zoo", "the zoo", "torchvision")
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            torch.library.define(f"torchvision::{op}", signature)
    from torchvision import models

    return models


def of_vision(name: str, *told: str, shape: Shape = PHOTO, **options: Any) -> Case:
    return Case(name, vision(name, **options), shape, told)


CASES = (
    of_vision("alexnet", HEAVY, HEAD),
    of_vision("vgg11", HEAVY, HEAD),
    of_vision("vgg11_bn", HEAVY, HEAD),
    of_vision("resnet18", HEAVY, HEAD, SRAM),
    of_vision("resnet34", HEAVY, HEAD, SRAM),
    of_vision("resnet50", HEAVY, HEAD, SRAM),
    of_vision("resnext50_32x4d", HEAVY, HEAD),
    of_vision("wide_resnet50_2", HEAVY, HEAD, SRAM),
    of_vision("resnet101", HEAVY, HEAD, SRAM),
    of_vision("squeezenet1_0", HEAVY, END),
    of_vision("squeezenet1_1", HEAVY, END),
    of_vision("densenet121", HEAVY, HEAD),
    of_vision("densenet169", HEAVY, HEAD),
    of_vision("googlenet", HEAVY, HEAD, SRAM, init_weights=False, aux_logits=False),
    of_vision("inception_v3", HEAVY, HEAD, SRAM, shape=(3, 299, 299), init_weights=False, aux_logits=False),
    of_vision("shufflenet_v2_x0_5", HEAD),
    of_vision("shufflenet_v2_x1_0", HEAVY, HEAD),
    of_vision("mobilenet_v2", HEAVY, HEAD),
    of_vision("mobilenet_v3_small", HEAVY, HEAD),
    of_vision("mobilenet_v3_large", HEAVY, HEAD),
    of_vision("mnasnet0_5", HEAVY, HEAD),
    of_vision("mnasnet1_0", HEAVY, HEAD),
    of_vision("efficientnet_b0", HEAVY, HEAD),
    of_vision("efficientnet_b1", HEAVY, HEAD, shape=(3, 240, 240)),
    of_vision("efficientnet_v2_s", HEAVY, HEAD),
    of_vision("regnet_x_400mf", HEAVY, HEAD),
    of_vision("regnet_y_400mf", HEAVY, HEAD),
    of_vision("convnext_tiny", HEAVY, HEAD, SRAM),
    of_vision("swin_t", SCORES, HEAVY, HEAD),
    of_vision("swin_v2_t", SCORES, HEAVY, HEAD),
    of_vision("vit_b_16", HEAVY, HEAD, SRAM),
    Case("mobilenet_v2_035", vision("mobilenet_v2", width_mult=0.35, num_classes=10), (3, 96, 96), ()),
    Case(
        "mobilenet_v3_small_025",
        vision("mobilenet_v3_small", width_mult=0.25, num_classes=10),
        (3, 96, 96),
        (),
    ),
    Case("shufflenet_v2_x0_5_10", vision("shufflenet_v2_x0_5", num_classes=10), (3, 96, 96), ()),
    Case("resnet8", small.resnet8, (3, 32, 32), ()),
    Case("mobilenet_v1_025", small.mobilenet_v1_025, (3, 96, 96), ()),
    Case("ds_cnn", small.ds_cnn, (1, 49, 10), ()),
    Case("lenet5", small.lenet5, (1, 28, 28), ()),
    Case("har_cnn", small.har_cnn, (9, 128), ()),
    Case("resnext8", small.resnext8, (3, 32, 32), ()),
    Case("tcn", small.tcn, (9, 128), ()),
    Case("gated_tcn", small.gated_tcn, (9, 128), ()),
    Case("hrnet_64", small.HighResolution, (3, 64, 64), ()),
    Case("cbam_resnet8", small.cbam_resnet8, (3, 32, 32), ()),
    Case("cbam_resnet8_onnx", small.cbam_resnet8, (3, 32, 32), (), onnx=True),
    Case("unet_64", small.UNet, (3, 64, 64), ()),
    Case("unet_64_transposed", partial(small.UNet, transposed=True), (3, 64, 64), ()),
    Case("alexnet_40", small.alexnet_40, (3, 40, 40), ()),
    Case("gru", small.gru, (98, 40), ()),
    Case("lstm", small.lstm, (128, 9), ()),
    Case("lstm_onnx", small.lstm, (128, 9), (), onnx=True),
    Case("keyword_transformer", attention.keyword_transformer, (1, 40, 98), (HEAVY,)),
    Case("keyword_transformer_6", partial(attention.keyword_transformer, 6), (1, 40, 98), ()),
    Case("vit_tiny", attention.vit_tiny, PHOTO, (HEAVY, HEAD)),
    Case("vit_cifar", attention.vit_cifar, (3, 32, 32), ()),
    Case("vit_cifar_onnx", attention.vit_cifar, (3, 32, 32), (), onnx=True),
    Case("mobilevit_xxs", attention.mobilevit_xxs, (3, 256, 256), (HEAVY, HEAD)),
    Case("mobilevit_half", attention.mobilevit_half, (3, 128, 128), ()),
)
