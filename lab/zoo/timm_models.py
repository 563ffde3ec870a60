"""Architectures of timm (Wightman 2019) that torchvision has not: small ones, and some as published."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from microtrain.base.extras import require

from .cases import HEAD, HEAVY, SCORES, Case, torchvision

THUMB, SMALL, MIDDLE, LARGE = ((3, side, side) for side in (32, 64, 96, 224))
TEN = {"num_classes": 10}


def timm() -> Any:
    """The package, which wants torchvision's names."""
    require("zoo", "the zoo", "timm")
    torchvision()
    import timm

    return timm


def named(name: str, **options: Any) -> Callable[[], nn.Module]:
    """A model by its name, without weights."""

    def made() -> nn.Module:
        model: nn.Module = timm().create_model(name, pretrained=False, **options)
        return model

    return made


def of_class(path: str, **options: Any) -> Callable[[], nn.Module]:
    """A network of a module and class, as "mlp_mixer.MlpMixer", of sizes that no published one has."""

    def made() -> nn.Module:
        timm()
        module, _, kind = path.rpartition(".")
        model: nn.Module = getattr(importlib.import_module(f"timm.models.{module}"), kind)(**TEN, **options)
        return model

    return made


FOUR = {"depths": (1, 1, 2, 1), "num_heads": (1, 2, 3, 4), "embed_dims": (16, 32, 48, 64)}
WIDER = {**FOUR, "embed_dims": (24, 48, 72, 96)}
CASES = (
    Case("timm_lcnet_035", named("lcnet_035", **TEN), MIDDLE, ()),
    Case("timm_starnet_s050", named("starnet_s050", **TEN), MIDDLE, ()),
    Case("timm_rexnet_020", named("rexnet_100", width_mult=0.2, **TEN), MIDDLE, ()),
    Case("timm_fasternet_12", named("fasternet_t0", embed_dim=12, **TEN), MIDDLE, ()),
    Case("timm_inception_next_8", named("inception_next_atto", dims=(8, 16, 32, 64), **TEN), MIDDLE, ()),
    Case(
        "timm_convmixer_64",
        of_class("convmixer.ConvMixer", dim=64, depth=4, kernel_size=7, patch_size=4),
        SMALL,
        (),
    ),
    Case("timm_nfnet", named("test_nfnet", **TEN), MIDDLE, ()),
    Case("timm_byobnet", named("test_byobnet", **TEN), MIDDLE, ()),
    Case("timm_mambaout", named("test_mambaout", **TEN), MIDDLE, ()),
    Case("timm_vit", named("test_vit", img_size=64, **TEN), SMALL, ()),
    Case(
        "timm_beit_64",
        named("beit_base_patch16_224", img_size=32, patch_size=8, embed_dim=64, depth=4, num_heads=4, **TEN),
        THUMB,
        (),
    ),
    Case("timm_coatnet", named("test_coatnet", img_size=64, **TEN), SMALL, ()),
    Case(
        "timm_mixer_64",
        of_class("mlp_mixer.MlpMixer", img_size=32, patch_size=4, num_blocks=8, embed_dim=64),
        THUMB,
        (),
        ours=64 * 64 + 8 * 4 * 64,
    ),
    Case("timm_twins_24", named("twins_svt_small", img_size=64, **WIDER, **TEN), SMALL, ()),
    Case(
        "timm_pvt_12",
        of_class("pvt_v2.PyramidVisionTransformerV2", depths=(1, 1, 2, 1), embed_dims=(12, 24, 60, 96)),
        SMALL,
        (),
    ),
    Case("timm_tiny_vit_16", of_class("tiny_vit.TinyVit", window_sizes=(4, 4, 4, 2), **FOUR), SMALL, ()),
    Case(
        "timm_nest_16",
        of_class(
            "nest.Nest",
            img_size=32,
            patch_size=2,
            embed_dims=(16, 32, 64),
            num_heads=(1, 2, 4),
            depths=(1, 1, 2),
        ),
        THUMB,
        (),
    ),
    Case(
        "timm_levit_32",
        of_class(
            "levit.Levit",
            img_size=96,
            embed_dim=(32, 48, 64),
            key_dim=8,
            depth=(1, 2, 2),
            num_heads=(2, 3, 4),
        ),
        MIDDLE,
        (),
    ),
    Case("timm_mobilenetv4_hybrid_medium", named("mobilenetv4_hybrid_medium", **TEN), MIDDLE, (HEAVY,)),
    Case("timm_hgnetv2_b0", named("hgnetv2_b0"), LARGE, (HEAVY, HEAD)),
    Case("timm_repvit_m1", named("repvit_m1", **TEN), LARGE, ("must end with a linear layer", HEAVY)),
    Case("timm_cait_xxs24", named("cait_xxs24_224"), LARGE, (SCORES, HEAVY, HEAD)),
    Case("timm_swin_tiny", named("swin_tiny_patch4_window7_224"), LARGE, (SCORES, HEAVY, HEAD)),
    Case("timm_efficientvit_b0", named("efficientvit_b0"), LARGE, ("wrap_with_autocast", HEAVY, HEAD)),
)
