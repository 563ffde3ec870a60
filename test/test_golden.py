"""The published networks against an independent simulator's logits, block outputs and gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from lab.golden import board
from lab.golden.check import check_blocks, check_gradients, check_logits, compare_blocks
from lab.golden.cli import faults
from lab.golden.data import NETWORKS, VARIABLE, Data, stored
from lab.golden.data import find as find_data
from lab.golden.graphs import golden_scheme, step_graph
from lab.golden.host import HostModel, check_host
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import ConvertError
from microtrain.convert.pipeline import compile_graph, with_head
from microtrain.convert.scheme import PUBLISHED, apply, find

pytestmark = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} is not set")
BLOCKS = {"mcunet-5fps": 14, "proxyless-w0.3": 20, "mbv2-w0.35": 17}
SCHEMES = sorted(p.stem for p in PUBLISHED.glob("*-*kb.yaml"))


@pytest.fixture(scope="module")
def data() -> Data:
    return find_data()


@pytest.mark.parametrize("network", NETWORKS)
def test_logits_are_equal(data: Data, network: str) -> None:
    found = check_logits(data, network, 12)
    assert (found.equal, found.max_diff) == (1.0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_all_logits_are_equal(data: Data, network: str) -> None:
    found = check_logits(data, network, 0)
    assert (found.equal, found.max_diff) == (1.0, 0)
    assert found.top1 > 0.48


@pytest.mark.parametrize("network", NETWORKS)
def test_every_block_output_is_equal(data: Data, network: str) -> None:
    differences = check_blocks(data, network)
    assert len(differences) == BLOCKS[network] + 4
    assert max(differences.values()) == 0


@pytest.mark.parametrize("network", NETWORKS)
def test_host_c_is_numpy_and_golden(data: Data, network: str, tmp_path: Path) -> None:
    found = check_host(data, network, 8, tmp_path)
    assert (found.logits.equal, found.logits.max_diff) == (1.0, 0)
    assert len(found.blocks) == BLOCKS[network] + 4
    assert max(found.blocks.values()) == 0
    assert found.tensors > 4 * 150
    assert found.different == []


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_the_emulated_board_is_golden(data: Data, network: str, tmp_path: Path) -> None:
    found = board.check_logits(data, network, 2, tmp_path / "elf")
    assert (found.logits.equal, found.logits.max_diff) == (1.0, 0)
    assert len(found.blocks) == BLOCKS[network] + 4
    assert max(found.blocks.values()) == 0
    assert board.check_training(data, network, tmp_path / "step") == [True] * 4


@pytest.mark.parametrize(("errors", "bar"), [("fp32", 0.999), ("int8", 0.98)])
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_equal_autograd(data: Data, network: str, errors: str, bar: float) -> None:
    found = check_gradients(data, network, errors)
    golden = data.train_step(network)
    expected = [key for key in golden if key.endswith("_grad")]
    assert len(found) == len(expected) > 4 * 42
    assert {(g.image, g.kind) for g in found if g.layer != "classifier"} >= {(i, "bias") for i in range(4)}
    assert min(g.cosine for g in found) > bar


def test_a_changed_weight_is_noticed(data: Data, tmp_path: Path) -> None:
    """The comparison of host C with NumPy, and that with the golden data, can fail."""
    golden = data.train_step("mcunet-5fps")
    graph = step_graph(data, "mcunet-5fps", golden)
    name = "blocks.3.depthwise"
    weight = graph.layers[name].weight.copy()
    weight[5, 1, 1] += 1
    wrong = graph.replace(layers={**graph.layers, name: replace(graph.layers[name], weight=weight)})
    host = HostModel(wrong, golden_scheme(golden), tmp_path)
    executor = Executor(graph)
    executor.forward(stored(golden["images_u8"][0]))
    host.model.forward(stored(golden["images_u8"][0]), train=True)
    assert f"{name}.y" in host.differences(executor)
    assert "blocks.2.pointwise2.y" not in host.differences(executor)
    run = partial(host.model.forward, train=False)
    assert max(compare_blocks(run, host.tensor, wrong, golden).values()) > 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("c_logits_equal", 0.999), ("elf_blocks_max_diff", 1), ("elf_steps_equal", 3), ("min_cosine_int8", 0.9)],
)
def test_a_fault_is_named(key: str, value: float) -> None:
    good = {
        "logits_equal": 1.0,
        "c_logits_equal": 1.0,
        "elf_blocks_max_diff": 0,
        "c_step_tensors_different": 0,
        "elf_steps": 4,
        "elf_steps_equal": 4,
        "min_cosine_fp32": 1.0,
        "min_cosine_int8": 0.997,
    }
    assert faults(good) == []
    assert faults({**good, key: value}) == [key]


def test_an_image_one_step_brighter_is_noticed(data: Data) -> None:
    """The comparison of blocks can fail."""
    golden = data.train_step("mcunet-5fps")
    executor = Executor(read_checkpoint(data.checkpoint("mcunet-5fps"), integer_head=True))
    executor.forward(stored(np.minimum(golden["images_u8"][0], 254) + 1))
    expected = golden["0/block0_s8"][0].transpose(1, 2, 0)
    assert np.abs(executor.env.values["blocks.0.pointwise2.y"].astype(int) - expected).max() > 0


@pytest.mark.parametrize("network", NETWORKS)
def test_rows_of_the_classifier_are_multiplied_out(data: Data, network: str) -> None:
    """A head that starts from ImageNet rows gives the int8 classifier's logits but for their rounding."""
    rows = (281, 3, 999, 500)
    whole = Executor(read_checkpoint(data.checkpoint(network), integer_head=True))
    chosen = Executor(with_head(read_checkpoint(data.checkpoint(network)), len(rows), rows))
    stored_logits = whole.env.graph.tensors["classifier.y"]
    for image, _ in data.imagenet(3):
        exact = whole.forward(image).reshape(-1)[list(rows)].astype(float) - stored_logits.zero
        assert np.abs(chosen.forward(image) - exact * stored_logits.scale).max() < 0.501 * stored_logits.scale


@pytest.mark.parametrize("name", SCHEMES)
def test_published_schemes_fit_their_network(data: Data, name: str) -> None:
    scheme = find(Path(name))
    assert scheme.network is not None
    graph = read_checkpoint(data.checkpoint(scheme.network))
    trained = {n: layer for n, layer in apply(graph, scheme).layers.items() if layer.trained}
    assert len(trained) == len(scheme.weights)
    other = next(n for n in NETWORKS if n != scheme.network)
    with pytest.raises(ConvertError, match=f"made for {scheme.network}"):
        apply(read_checkpoint(data.checkpoint(other)), scheme)


def test_the_plan_of_mcunet_is_within_2_percent(data: Data) -> None:
    compiled = compile_graph(read_checkpoint(data.checkpoint("mcunet-5fps")), find(Path("mcunet-49kb")), 10)
    assert compiled.plan.arena <= 1.02 * compiled.plan.lower_bound


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(ConvertError, match=r"mbv2-49kb.*proxyless-98kb"):
        find(Path("mcunet-50kb"))


def test_convert_by_name(data: Data, tmp_path: Path) -> None:
    arguments = [str(data.checkpoint("mcunet-5fps")), "--scheme", "mcunet-49kb", "--classes", "10"]
    done = subprocess.run(
        [sys.executable, "tools/convert", *arguments, "-o", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mcunet-49kb" in done.stdout
