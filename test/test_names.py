"""Names from files reach generated C, tables and terminals as text, never as code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pio_build import ROOT

from lab.attack import corpus as hostile
from lab.attack import names as attack
from microtrain.base.errors import Error
from microtrain.convert import names
from microtrain.convert.cli import main
from microtrain.convert.emit import code, model, steps
from microtrain.convert.ir import ConvertError

CODE = "a*/ extern int system(const char *); __attribute__((constructor)) void f(void) "
CODE += '{ system("touch pwned"); } /*'
TEXTS = st.lists(
    st.text(st.sampled_from("*/\\\"?\n\r'%ab x\t\0é\u202e"), max_size=12), min_size=1, max_size=200
)


@settings(max_examples=40, deadline=None)
@given(TEXTS)
def test_comments_and_strings_hold_any_text(texts: list[str]) -> None:
    lines = [f"/* {names.comment(t)} */ char s{i}[] = {names.c_string(t)};" for i, t in enumerate(texts)]
    source = "\n".join([*lines, "int end;\n"])
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-Wno-trigraphs", "-xc", "-E", "-P", "-"]
    shown = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    assert shown.split("\n")[-2] == "int end;"
    assert [line.split(" = ")[0].strip() for line in shown.splitlines()[:-1]] == [
        f"char s{i}[]" for i in range(len(texts))
    ]


def test_a_string_is_the_text(tmp_path: Path) -> None:
    text = 'a "quoted" ??/ \\n 100% ok?'
    (tmp_path / "p.c").write_text(
        f"#include <stdio.h>\nint main(void) {{ fputs({names.c_string(text)}, stdout); }}\n"
    )
    subprocess.run(["gcc", "-std=c11", "-o", tmp_path / "p", tmp_path / "p.c"], check=True)
    assert subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True).stdout == text


@given(st.lists(st.text(max_size=90), max_size=20))
def test_safe_names_are_plain(texts: list[str]) -> None:
    for text in texts:
        assert names.safe_name(text).isascii() and names.safe_name(names.safe_name(text)) == names.safe_name(
            text
        )
    assert names.safe_name("blocks.2.conv-1") == "blocks.2.conv-1"


def test_random_hostile_names_go_through_a_compiler(tmp_path: Path) -> None:
    report = attack.attack_names(tmp_path, 12, seed=1)
    assert report.compiled == 12 and report.broken == ()


@pytest.mark.parametrize("sink", ["comment", "c_string"])
def test_that_attack_notices_a_sink_without_escaping(
    sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (model, steps) if sink == "comment" else (code,):
        monkeypatch.setattr(module, sink, "{}".format if sink == "comment" else '"{}"'.format)
    if sink == "c_string":
        monkeypatch.setattr(attack, "safe_name", lambda text: text)
    assert attack.attack_names(tmp_path, 12, seed=1).broken


class Named(torch.nn.Module):
    """hostile.Tiny with other names for its layers."""

    def __init__(self, conv: str, head: str) -> None:
        super().__init__()
        self.names = conv, head
        self.add_module(conv, torch.nn.Conv2d(1, 4, 3, 2, 1))
        self.add_module(head, torch.nn.Linear(64, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        conv, head = (getattr(self, name) for name in self.names)
        result: torch.Tensor = head(torch.relu(conv(x)).flatten(1))
        return result


OTHER_NAMES = ("[/red]", "a\x1b[2Jb", "é" * 300)


@pytest.mark.parametrize(
    "name", [CODE, 'a"b', "conv??/", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_NAMES)]
)
def test_a_layer_cannot_name_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer, file, folder and scheme, each with the attacker's name; the C compiles and does nothing."""
    monkeypatch.chdir(tmp_path)
    file = "".join(c for c in name if c not in "/\0")[:60]
    folder, out = tmp_path / file, tmp_path / "out"
    folder.mkdir()
    net = Named(name.replace(".", "_"), name.replace(".", "_") + "head")
    path = hostile.exported(folder / f"{file}.pt", net)
    scheme = folder / "s.yaml"
    scheme.write_text(f"biases: all\nweights: all\nname: {json.dumps(name)}\n")
    images = tmp_path / "images.npz"
    hostile.np.savez(images, images=hostile.np.random.default_rng(0).integers(0, 255, (16, 8, 8, 1), "uint8"))
    options = ["--calibration", images, "--scheme", scheme, "--explain", "--quantization", "-o", out]
    result = CliRunner().invoke(main, list(map(str, [path, *options])), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "\x1b[2J" not in result.output
    source = [out / "model.c", out / "model_weights.c"]
    kernels = [str(p) for p in (ROOT / "firmware/src/kernels").glob("*.c")]
    shared = tmp_path / "model.so"
    command = ["gcc", "-std=gnu11", "-shared", "-fPIC", f"-I{ROOT}/firmware/include", f"-I{out}"]
    subprocess.run([*command, *source, *kernels, "-lm", "-o", shared], check=True)
    subprocess.run(["python3", "-c", f"import ctypes; ctypes.CDLL({str(shared)!r})"], check=True)
    assert not (tmp_path / "pwned").exists()


def test_names_that_only_c_confuses_are_told_apart(tmp_path: Path) -> None:
    path = hostile.exported(tmp_path / "model.pt", Named("a-b", "a_b"))
    with pytest.warns(UserWarning, match="a_b is called a_b_2"):
        graph = hostile_graph(path)
    assert set(graph.layers) == {"a-b", "a_b_2"}
    assert graph.layers["a_b_2"].source.weight == "a_b.weight"


def hostile_graph(path: Path):  # type: ignore[no-untyped-def]
    from microtrain.convert.frontends.module import load_model

    return load_model(path).graph


def test_errors_print_nothing_that_a_terminal_obeys() -> None:
    assert str(Error("a\x1b[2Jb\u202e\nc")) == "a?[2Jb?\nc"
    assert str(ConvertError("layer \x07x")) == "layer ?x"
