"""`python tools/convert`: what it writes, what it prints, and every way in which it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from microtrain.convert import boards
from microtrain.convert.cli import main

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/digits"
MODEL = str(EXAMPLE / "model.pt")
TOO_MUCH = (MODEL, "--scheme", "full", "--replay", 120, "--replay-code", "off")  # more than 128 KB of SRAM
FILES = {
    "model.c",
    "model.h",
    "model_weights.c",
    "model_library.inc",
    "plan.json",
    "model.npz",
    "report.html",
}


def convert(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def refused(output: Path, *arguments: str | Path | int) -> str:
    """The sentence of a refusal, which writes nothing and shows no traceback."""
    result = convert(*arguments, "-o", output)
    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert not output.exists()
    return result.output


def test_the_bare_command_converts_the_example(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "tools/convert", MODEL, "-o", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert {p.name for p in tmp_path.iterdir()} == FILES
    assert "scheme bias-16+" in result.stdout
    assert "blocks.0.expand" in result.stdout


def test_what_can_never_be_saved_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default scheme may train more than a checkpoint slot holds: `save` then answers err flash."""
    board = boards.find()
    monkeypatch.setattr(boards, "find", lambda name: replace(board, slot=32_768))
    said = convert(MODEL, "--classes", 10, "-o", tmp_path / "all").output
    assert "saved       never: 46,328 B to keep, and a checkpoint slot has 32,768 B" in said
    assert "never: 46,328 B" in (tmp_path / "all/report.html").read_text()
    assert "\nsaved " not in convert(MODEL, "--budget-sram", 24, "-o", tmp_path / "less").output


def test_a_checkpoint_fits_where_the_firmware_says_so() -> None:
    """Its slot header, its record and the trainables, in units of 32 bytes."""
    slot = boards.find().slot
    assert boards.find().can_save(slot - 96) and not boards.find().can_save(slot - 95)
    source = (ROOT / "firmware/src/runtime/checkpoint.c").read_text()
    first, _, rest = source.partition("struct record {")[2].partition("};")[0].partition("/*")
    fields = first + rest.partition("*/")[2]
    words = sum(line.count(",") + 1 for line in fields.splitlines() if ";" in line) + 1  # erases are two
    assert 4 * words == boards.RECORD and "VERSION = 1, ALIGNMENT = 32" in source


def test_folders_are_said_as_one_types_them_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a project the lines of what comes next fit 80 columns, wherever the project lies."""
    (tmp_path / "garden").mkdir()
    monkeypatch.chdir(tmp_path / "garden")
    here = convert(MODEL, "--board", "native", "-o", tmp_path / "garden/firmware/generated").output
    assert "to firmware/generated\n" in here
    assert "microtrain simulate firmware/generated --data" in here
    elsewhere = convert(MODEL, "--board", "native", "-o", tmp_path / "other").output
    assert f"microtrain simulate {tmp_path / 'other'} --data" in elsewhere


def test_a_conversion_ends_with_what_was_chosen_and_what_comes_next(tmp_path: Path) -> None:
    scheme = ("--scheme", EXAMPLE / "scheme.yaml", "--board", "native")
    chosen = convert(MODEL, "--budget-sram", 40, "-o", tmp_path / "default").output
    named = convert(MODEL, *scheme, "-o", tmp_path / "named").output
    assert "conversion's own choice" in chosen and "-t upload" in chosen
    assert "digits-sparse, as asked for" in named and "pio run -e native" in named
    assert "the head, biases of 9 layers, weights of 3 layers" in named
    for text in (chosen, named):
        end = text[text.index("\ntrained  ") :]
        assert max(map(len, end.replace(str(tmp_path), "").splitlines())) <= 80
        assert f"microtrain simulate {tmp_path}" in end
    page = (tmp_path / "named/report.html").read_text()
    assert "digits-sparse, as asked for" in page and "blocks.3.expand" in page and str(tmp_path) not in page


def test_the_output_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        result = convert(MODEL, "--scheme", EXAMPLE / "scheme.yaml", "--classes", 10, "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
    for file in FILES:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_plan_agrees_with_itself(tmp_path: Path) -> None:
    assert convert(MODEL, "--scheme", EXAMPLE / "scheme.yaml", "--classes", 10, "-o", tmp_path).exit_code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    header = (tmp_path / "model.h").read_text()
    assert plan["classes"] == 10
    assert f"#define MODEL_ARENA_BYTES {plan['arena']['bytes']}\n" in header
    assert f"#define MODEL_TRAINABLE_BYTES {plan['trainables']['bytes']}\n" in header
    word = int.from_bytes(bytes.fromhex(plan["model_id"])[:4], "little")
    assert f"#define MODEL_ID 0x{word:08x}u\n" in header
    alive = [t for t in plan["tensors"] if t["birth"] <= plan["arena"]["peak_step"] <= t["death"]]
    assert sum(-(-t["bytes"] // 8) * 8 for t in alive) >= plan["arena"]["lower_bound"]
    ends = [t["offset"] + t["bytes"] for t in plan["trainables"]["tensors"]]
    assert max(ends) <= plan["trainables"]["bytes"]
    assert len(plan["steps"]) == 1 + max(t["death"] for t in plan["tensors"])


def test_an_explicit_calibration_folder(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "images").mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (32, 32)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    result = convert(MODEL, "--calibration", tmp_path / "images", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output


def test_no_such_file(tmp_path: Path) -> None:
    assert "nowhere.pt" in refused(tmp_path / "out", tmp_path / "nowhere.pt")


def test_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    assert "text.pt" in refused(tmp_path / "out", tmp_path / "text.pt")


class Evil:
    """Unpickling this would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    torch.save(Evil(victim), tmp_path / "evil.pt")
    assert "--trust" in refused(tmp_path / "out", tmp_path / "evil.pt")
    assert not victim.exists()


def exported(path: Path, module: torch.nn.Module) -> Path:
    program = torch.export.export(module.eval(), (torch.zeros(1, 1, 8, 8),))
    torch.export.save(program, path)
    return path


def small(middle: torch.nn.Module) -> torch.nn.Sequential:
    layers = [
        torch.nn.Conv2d(1, 4, 3),
        middle,
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 2),
    ]
    return torch.nn.Sequential(*layers)


def test_an_unsupported_op_is_named(tmp_path: Path) -> None:
    said = refused(tmp_path / "out", exported(tmp_path / "m.pt", small(torch.nn.RReLU())))
    assert "rrelu" in said.lower()
    assert "relu" in said.lower()


def test_no_calibration(tmp_path: Path) -> None:
    said = refused(tmp_path / "out", exported(tmp_path / "m.pt", small(torch.nn.ReLU())))
    assert "--calibration" in said


def test_nan_weights(tmp_path: Path) -> None:
    module = small(torch.nn.ReLU())
    with torch.no_grad():
        next(module.parameters())[0] = float("nan")
    np.savez(tmp_path / "c.npz", images=np.zeros((2, 8, 8, 1), np.uint8))
    said = refused(tmp_path / "out", exported(tmp_path / "m.pt", module), "--calibration", tmp_path / "c.npz")
    assert "nan" in said.lower()


@pytest.mark.parametrize("shape", [(2, 8, 8, 1), (0, 32, 32, 1)])
def test_wrong_calibration_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.savez(tmp_path / "c.npz", images=np.zeros(shape, np.uint8))
    assert "c.npz" in refused(tmp_path / "out", MODEL, "--calibration", tmp_path / "c.npz")


@pytest.mark.parametrize(
    ("text", "said"),
    [("weights: {nowhere: 0.5}", "no convolution 'nowhere'"), ("weights: {blocks.0.expand: 1.5}", "(0, 1]")],
)
def test_schemes_that_do_not_fit(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    assert said in refused(tmp_path / "out", MODEL, "--scheme", tmp_path / "s.yaml")


@pytest.mark.parametrize("scheme", [[], ["--scheme", EXAMPLE / "head.yaml"]])
def test_head_rows_by_flag(tmp_path: Path, scheme: list[str | Path]) -> None:
    result = convert(MODEL, "--head-rows", "5,0-2", *scheme, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["classes"] == 4
    assert plan["scheme"]["head"] == {"rows": [5, 0, 1, 2]}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("1,x", "'x' is no row"),
        ("7-3", "'7-3' is no row"),
        ("1,2,0-1", "twice"),
        ("1,70", "row 70 of the head does not exist"),
        ("1,2,3", "3 rows of the model's own, for 2 classes"),
    ],
)
def test_head_rows_that_do_not_fit(tmp_path: Path, rows: str, said: str) -> None:
    classes = ("--classes", "2") if rows != "1,70" else ()
    assert said in refused(tmp_path / "out", MODEL, "--head-rows", rows, *classes)


def test_over_the_sram_budget(tmp_path: Path) -> None:
    scheme = EXAMPLE / "scheme.yaml"
    said = refused(tmp_path / "out", MODEL, "--scheme", scheme, "--classes", 10, "--budget-sram", 8)
    assert "over the budget" in said
    assert "peak" in said


@pytest.mark.parametrize(("board", "kb"), [("disco_f746ng", (320, 1024)), ("nucleo_f446re", (128, 512))])
def test_the_budget_is_the_boards_where_none_is_given(
    board: str, kb: tuple[int, int], tmp_path: Path
) -> None:
    scheme = EXAMPLE / "scheme.yaml"
    assert convert(MODEL, "--scheme", scheme, "--board", board, "-o", tmp_path).exit_code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["budget"] == {"sram": kb[0] * 1024, "flash": kb[1] * 1024}


def test_a_default_scheme_fits_the_smaller_board(tmp_path: Path) -> None:
    assert convert(MODEL, "--board", "nucleo_f446re", "-o", tmp_path).exit_code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["arena"]["bytes"] + plan["trainables"]["bytes"] < 128 * 1024


def test_weights_that_their_flash_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(boards.find("nucleo_f446re"), weights=30_000)
    monkeypatch.setattr(boards, "find", lambda name: small)
    said = refused(tmp_path / "out", MODEL, "--board", "nucleo_f446re", "--scheme", EXAMPLE / "head.yaml")
    assert "1,712 B more than the 30,000 B that nucleo_f446re has for them" in said


def test_no_such_board(tmp_path: Path) -> None:
    result = convert(MODEL, "--board", "arduino", "-o", tmp_path)
    assert result.exit_code == 2
    assert "'disco_f746ng', 'nucleo_f446re', 'native'" in result.output


def test_this_machine_has_no_budget(tmp_path: Path) -> None:
    assert "all that nucleo_f446re has" in refused(tmp_path / "out", *TOO_MUCH, "--board", "nucleo_f446re")
    assert convert(*TOO_MUCH, "--board", "native", "-o", tmp_path).exit_code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["budget"] is None
    assert {row["trained"] for row in plan["layers"] if "conv2d" in row["op"]} > {"weight 16/16 + bias"}


@pytest.mark.parametrize(("option", "kb"), [("--budget-sram", 100), ("--budget-flash", 50)])
def test_a_budget_given_for_this_machine_is_kept(option: str, kb: int, tmp_path: Path) -> None:
    said = refused(tmp_path / "out", *TOO_MUCH, "--board", "native", option, kb)
    assert ("over the budget of 102,400 B" in said) == (option == "--budget-sram")
    assert f"raise {option}" in said


def test_this_machine_trains_everything_where_no_scheme_is_named(tmp_path: Path) -> None:
    assert convert(MODEL, "--board", "native", "-o", tmp_path).exit_code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["scheme"]["name"] == "bias-16+16"


@pytest.mark.parametrize(("bits", "kinds"), [("0", set()), ("4", {"u4"}), ("8", {"s8"})])
def test_fraction_bits_replace_the_schemes(tmp_path: Path, bits: str, kinds: set[str]) -> None:
    options = ("--scheme", "last-6", "--fraction-bits", bits)
    assert convert(MODEL, *options, "-o", tmp_path).exit_code == 0
    plan = json.loads((tmp_path / "plan.json").read_text())
    tensors = plan["trainables"]["tensors"]
    assert plan["scheme"]["fraction_bits"] == int(bits)
    assert {t["dtype"] for t in tensors if t["kind"] == "fraction"} == kinds


def test_fraction_bits_need_a_scheme(tmp_path: Path) -> None:
    assert "name one with --scheme" in refused(tmp_path / "out", MODEL, "--fraction-bits", "4")


def test_over_the_flash_budget(tmp_path: Path) -> None:
    said = refused(tmp_path / "out", MODEL, "--scheme", EXAMPLE / "head.yaml", "--budget-flash", 41)
    assert "flash" in said
    assert "weights" in said


def test_a_default_scheme_keeps_the_budget(tmp_path: Path) -> None:
    result = convert(MODEL, "--budget-sram", 48, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["arena"]["bytes"] + plan["trainables"]["bytes"] < 48 * 1024
    assert plan["scheme"]["biases"] > 0


@pytest.mark.parametrize("shape", ["1x32x32x1", "axbxc", "1x0x3"])
def test_malformed_input_shapes(tmp_path: Path, shape: str) -> None:
    assert "CxHxW" in refused(tmp_path / "out", MODEL, "--input", shape)


def test_the_shape_of_a_series_is_no_images(tmp_path: Path) -> None:
    assert "an input of 1x32x32, not 32x32" in refused(tmp_path / "out", MODEL, "--input", "32x32")


def test_an_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = convert(MODEL, "-o", tmp_path / "file" / "out")
    assert result.exit_code == 1
    assert "cannot write" in result.output
