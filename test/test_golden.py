"""The published networks against an independent simulator's logits, block outputs and gradients."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from convert.frontends.checkpoint import read_checkpoint
from convert.ir import ConvertError
from convert.pipeline import compile_graph
from convert.scheme import PUBLISHED, apply, find
from golden.check import check_blocks, check_gradients, check_logits
from golden.data import NETWORKS, VARIABLE, Data, stored
from golden.data import find as find_data

pytestmark = pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} is not set")
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
    assert len(differences) >= 14
    assert max(differences.values()) == 0


@pytest.mark.parametrize(("errors", "bar"), [("fp32", 0.999), ("int8", 0.98)])
@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_equal_autograd(data: Data, network: str, errors: str, bar: float) -> None:
    found = check_gradients(data, network, errors)
    assert len(found) > 4 * 42
    assert min(found.values()) > bar


def test_an_image_one_step_brighter_is_noticed(data: Data) -> None:
    """The comparison of blocks can fail."""
    from convert.executor import Executor

    golden = data.train_step("mcunet-5fps")
    executor = Executor(read_checkpoint(data.checkpoint("mcunet-5fps"), integer_head=True))
    executor.forward(stored(np.minimum(golden["images_u8"][0], 254) + 1))
    expected = golden["0/block0_s8"][0].transpose(1, 2, 0)
    assert np.abs(executor.env.values["blocks.0.pointwise2.y"].astype(int) - expected).max() > 0


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


def checkpoint(data: Data) -> dict[str, Any]:
    from convert.frontends.checkpoint import read_dict

    return read_dict(data.checkpoint("mbv2-w0.35"))


def broken(found: dict[str, Any], how: str) -> object:
    block = found["blocks"][2]
    if how == "key":
        del block["pointwise1"]["params"]["w_scales"]
    elif how == "shape":
        params = block["depthwise"]["params"]
        params["weight"] = params["weight"][1:]
    elif how == "se":
        block["se"] = {"reduce": 4}
    elif how == "skip":
        block["residual"]["params"]["weight"] = np.zeros(1)
    elif how == "code":
        found["blocks"] = [Path]
    return found


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("key", "w_scales"),
        ("shape", "weight of"),
        ("se", "squeeze"),
        ("skip", "skip path"),
        ("code", "arrays"),
    ],
)
def test_damaged_checkpoints_are_named(data: Data, tmp_path: Path, how: str, said: str) -> None:
    path = tmp_path / "net.pkl"
    path.write_bytes(pickle.dumps(broken(checkpoint(data), how)))
    with pytest.raises(ConvertError, match=said):
        read_checkpoint(path)


def test_an_input_the_strides_do_not_divide(data: Data) -> None:
    with pytest.raises(ConvertError, match="does not divide"):
        read_checkpoint(data.checkpoint("mbv2-w0.35"), image=100)


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
