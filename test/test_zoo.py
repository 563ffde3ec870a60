"""The zoo: what it holds against `convert --check`, and that a wrong answer is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.zoo import cases, cli, timm_models
from lab.zoo.cases import CASES, Case
from microtrain.convert import obstacles


def case(name: str) -> Case:
    return next(each for each in CASES if each.name == name)


def test_forty_architectures_are_asked_about() -> None:
    assert len({each.name for each in CASES}) == 58
    assert sum(not each.told for each in CASES) == 24
    assert len({each.name for each in (*CASES, *timm_models.CASES)}) == 82


def test_without_timm_its_networks_are_left_out_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert cli.asked(None) == list(CASES) and "pip install --no-deps timm" in capsys.readouterr().out
    monkeypatch.setattr(cli, "find_spec", lambda name: name)
    assert cli.asked("timm_vit") == [next(each for each in timm_models.CASES if each.name == "timm_vit")]


@pytest.mark.parametrize(
    "name",
    [
        "resnet8",
        "mobilenet_v1_025",
        "ds_cnn",
        "gated_tcn",
        "unet_64",
        "unet_64_transposed",
        "cbam_resnet8",
        "lenet5",
        "vit_cifar_onnx",
    ],
)
def test_the_small_ones_fit_and_their_weights_are_counted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "WORK", tmp_path)
    row = cli.looked_at(case(name), built=False)
    assert row["verdict"] == "fits" and row["wrong"] == []
    monkeypatch.setattr(obstacles, "head_too_large", lambda *_: ["too many classes"])
    assert cli.looked_at(case(name), built=False)["wrong"] == ["should fit"]


def test_what_is_not_told_wrong_or_slow_is_said() -> None:
    asked = Case("net", lambda: None, (3, 8, 8), (cases.SCORES, cases.HEAVY))  # type: ignore[arg-type, return-value]
    row = {
        "obstacles": [f"layer a: a mask {cases.SCORES}"],
        "estimated": {"weights": 1000, "flash": 2000},
        "true": {"weights": 1019, "flash": 2200},
        "processor_seconds": 12.0,
    }
    assert cli.wrong(asked, row) == [
        f"is not told of: {cases.HEAVY}",
        "flash is 2,200 B, not 2,000 B",
        "took 12.0 s",
    ]
