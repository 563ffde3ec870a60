"""The front end against PyTorch: values, names, batch norm folding, a sentence for what is unsupported."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_networks
from torch import nn
from torch.nn import functional
from torch_networks import NETWORKS, images_for, randomise, torch_logits, write

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import LoadedModel, load_model
from microtrain.convert.ir import ConvertError, Graph, Input, Window
from microtrain.convert.normalisation import Normalisation, Origin
from microtrain.convert.tasks import headed
from microtrain.convert.verify import verify

WAYS = ("exported", "decomposed", "dynamic", "scripted", "traced", "module")


def load(path: Path, net: nn.Module) -> LoadedModel:
    return load_model(path, trust=True, input_shape=net.shape)  # type: ignore[arg-type]


def assert_same_graph(a: Graph, b: Graph) -> None:
    assert a.nodes == b.nodes
    assert dict(a.tensors) == dict(b.tensors)
    assert (a.name, a.input, a.output) == (b.name, b.input, b.output)
    assert list(a.layers) == list(b.layers)
    for name in a.layers:
        assert a.layers[name].source == b.layers[name].source
        assert np.array_equal(a.layers[name].weight, b.layers[name].weight), name
        assert np.array_equal(a.layers[name].bias, b.layers[name].bias), name


@pytest.mark.parametrize("name", NETWORKS)
def test_all_ways_give_one_graph_with_torchs_values(name: str, tmp_path: Path) -> None:
    net = randomise(NETWORKS[name](), seed=3)
    images = images_for(net, 6, seed=4)
    expected = torch_logits(net, images)
    first: Graph | None = None
    for way in WAYS:
        if way == "dynamic" and name != "idioms":
            continue
        loaded = load(write(net, tmp_path / "model.pt", way), net)
        kind = {"scripted": "torchscript", "traced": "torchscript", "module": "module"}.get(way, "exported")
        assert loaded.kind == kind
        verify(loaded.graph)
        error = np.abs(run_float(loaded.graph, images) - expected).max() / np.abs(expected).max()
        assert error < 1e-5, way
        first = first or loaded.graph
        assert_same_graph(first, loaded.graph)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_matters_to_that_comparison(name: str, tmp_path: Path) -> None:
    """A planted error in any one layer is seen by the comparison with torch."""
    net = randomise(NETWORKS[name](), seed=3)
    images = images_for(net, 6, seed=4)
    expected = torch_logits(net, images)
    graph = load(write(net, tmp_path / "model.pt", "scripted"), net).graph
    for key, layer in graph.layers.items():
        wrong = {**graph.layers, key: type(layer)(layer.weight[::-1].copy(), layer.bias, layer.source)}
        difference = np.abs(run_float(graph.replace(layers=wrong), images) - expected).max()
        assert difference > 1e-4 * np.abs(expected).max(), key


def test_names_are_module_paths_and_state_dict_names(tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=1)
    graph = load(write(net, tmp_path / "model.pt", "exported"), net).graph
    assert [n.op for n in graph.nodes].count("dwconv2d") == 3
    assert [n.name for n in graph.nodes if n.op == "add"] == ["blocks.1.add", "blocks.2.add"]
    source = graph.layers["blocks.1.depthwise"].source
    assert (source.weight, source.bias, source.bn) == ("blocks.1.depthwise.weight", None, "blocks.1.norm")
    names = set(net.state_dict())
    for layer in graph.layers.values():
        assert layer.source.weight in names
        assert layer.source.bias is None or layer.source.bias in names
        assert layer.source.bn is None or f"{layer.source.bn}.running_var" in names
    assert graph.nodes[-1].op == "head" and graph.output == "logits"
    acts = {n.name: n.act for n in graph.nodes}
    assert acts["stem.0"] == "relu6" and acts["blocks.1.project"] == "none"


def test_linear_over_a_map_is_a_convolution_over_the_whole_map(tmp_path: Path) -> None:
    net = randomise(NETWORKS["pooled"](), seed=1)
    graph = load(write(net, tmp_path / "model.pt", "exported"), net).graph
    node = next(n for n in graph.nodes if n.name == "hidden")
    assert node.op == "conv2d" and node.act == "relu" and node.window is not None
    assert (node.window.kh, node.window.kw) == (3, 2)
    assert graph.layers["hidden"].weight.shape == (11, 3, 2, 5)
    idioms = randomise(NETWORKS["idioms"](), seed=1)
    graph = load(write(idioms, tmp_path / "model.pt", "exported"), idioms).graph
    wanted = idioms.out.weight.detach().numpy().reshape(6, 3, 4, 4).transpose(0, 2, 3, 1).reshape(6, 48)  # type: ignore[union-attr, operator]
    assert np.array_equal(graph.layers["out"].weight, wanted)


def test_batch_norm_is_folded_with_its_eps(tmp_path: Path) -> None:
    class Net(nn.Module):
        shape = (2, 6, 6)

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 3, 3)
            self.bn = nn.BatchNorm2d(3, eps=0.25)
            self.head = nn.Linear(48, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.bn(self.conv(x)).flatten(1))
            return result

    net = randomise(Net(), seed=5)
    net.bn.running_var.fill_(0.01)  # type: ignore[union-attr, operator]
    graph = load(write(net, tmp_path / "model.pt", "exported"), net).graph
    state = {k: v.double().numpy() for k, v in net.state_dict().items()}
    assert graph.layers["conv"].source.eps == 0.25  # what `device pull --state-dict` divides by
    gain = state["bn.weight"] / np.sqrt(0.01 + 0.25)
    weight = (state["conv.weight"] * gain[:, None, None, None]).transpose(0, 2, 3, 1)
    bias = (state["conv.bias"] - state["bn.running_mean"]) * gain + state["bn.bias"]
    np.testing.assert_allclose(graph.layers["conv"].weight, weight, rtol=1e-6)
    np.testing.assert_allclose(graph.layers["conv"].bias, bias, rtol=1e-5)
    assert graph.layers["conv"].source.bias == "conv.bias"
    assert graph.layers["conv"].weight.dtype == np.float32


def extra_file(**changes: object) -> str:
    packed = io.BytesIO()
    np.savez_compressed(packed, images=np.zeros((3, 20, 24, 3), np.uint8))
    data = base64.b64encode(packed.getvalue()).decode()
    extra = {
        "calibration": {"format": "npz-base64", "data": data},
        "input": {"mean": [0.5], "std": [0.25, 0.5, 0.125]},
        "classes": ["a", "b", "c", "d", "e"],
    }
    return json.dumps({**extra, **changes})


def test_images_normalisation_and_names_travel_in_the_file(tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=1)
    extra = {"microtrain.json": extra_file()}
    loaded = load(write(net, tmp_path / "model.pt", "exported", extra_files=extra), net)
    assert loaded.calibration is not None and loaded.calibration.shape == (3, 20, 24, 3)
    assert loaded.normal == Normalisation((0.5, 0.5, 0.5), (0.25, 0.5, 0.125), Origin.FILE)
    assert loaded.class_names == loaded.graph.classes == ("a", "b", "c", "d", "e")
    gain = tuple(1 / (255 * s) for s in (0.25, 0.5, 0.125))
    assert loaded.graph.input == Input("input", gain, (-2.0, -1.0, -4.0))
    bare = load(write(net, tmp_path / "model.pt", "exported"), net)
    assert bare.calibration is None and bare.class_names == () and bare.normal.origin is Origin.ASSUMED


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input": {"mean": [0.5, 0.5]}}, "input.mean is [0.5, 0.5]; it must be 1 or 3 numbers"),
        ({"input": {"std": [0]}}, "above 0"),
        ({"input": [1]}, "input.mean is None"),
        ({"classes": "abc"}, "classes must be a list of names"),
        ({"calibration": {"format": "png", "data": ""}}, "npz-base64"),
        ({"calibration": {"format": "npz-base64", "data": "AAAA"}}, "npz-base64"),
    ],
)
def test_wrong_extra_file_is_a_sentence(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=1)
    extra = {"microtrain.json": extra_file(**changes)}
    path = write(net, tmp_path / "model.pt", "exported", extra_files=extra)
    with pytest.raises(ConvertError) as caught:
        load(path, net)
    assert words in str(caught.value) and "microtrain.json" in str(caught.value)


class Wrapped(nn.Module):
    """conv > the op under test > flatten > linear. Input 4x8x8; 4 channels of 8x8 reach the op."""

    shape = (4, 8, 8)

    def __init__(self, op: nn.Module, features: int = 256) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.op = op
        self.head = nn.Linear(features, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.op(self.conv(x)).flatten(1))
        return result


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x


class PlusOne(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1.0


class LateRelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x) + functional.max_pool2d(x, 3, 1, 1)


class LateNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = randomise(nn.BatchNorm2d(4), seed=5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x) + x
        return result


class Clipped(nn.Module):
    """The second activation changes nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(functional.relu6(40.0 * x))


class PoolOfSeveral(nn.Module):
    """A maximum that is read as it is, and with what is below 0 cut off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(x, 2)
        return functional.relu(x) - 0.5 * x


UNSUPPORTED: dict[str, tuple[nn.Module, int, tuple[str, ...]]] = {
    "rrelu": (nn.RReLU(), 256, ("layer op", "rrelu", "relu or relu6")),
    "leaky": (nn.Sequential(nn.LeakyReLU(-3.0)), 256, ("layer op.0", "slope of -3", "below 2")),
    "far apart": (nn.Conv2d(4, 4, 3, padding=128, dilation=128), 256, ("layer op", "257x257", "255 pixels")),
    "layer norm": (nn.LayerNorm((8, 8)), 256, ("layer op", "layer norm over the last 2", "GroupNorm")),
    "nothing": (Nothing(), 256, ("layer op", "subtracts a tensor from itself")),
    "two norms": (
        nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4)),
        256,
        ("layer conv", "two batch norms"),
    ),
    "dilated pool": (nn.MaxPool2d(2, 1, dilation=2), 144, ("layer op", "dilation")),
}


@pytest.mark.parametrize("way", ["exported", "scripted"])
@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_op_names_the_layer_and_the_nearest(case: str, way: str, tmp_path: Path) -> None:
    op, features, words = UNSUPPORTED[case]
    net = Wrapped(op, features).eval()
    with pytest.raises(ConvertError) as caught:
        load(write(net, tmp_path / "model.pt", way), net)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


SUPPORTED: dict[str, tuple[nn.Module, int]] = {
    "groups": (nn.Conv2d(4, 4, 3, padding=1, groups=2), 256),
    "multiplier": (nn.Conv2d(4, 8, 3, padding=1, groups=4), 512),
    "dilation": (nn.Conv2d(4, 4, 3, padding=2, dilation=2), 256),
    "even same": (nn.Conv2d(4, 4, 4, padding="same"), 256),
    "late relu": (LateRelu(), 256),
    "late norm": (LateNorm(), 256),
    "relu of relu6": (Clipped(), 256),
    "relu beside its pool": (PoolOfSeveral(), 64),
    "relu of average": (nn.Sequential(nn.AvgPool2d(2), nn.ReLU()), 64),
    "ceil": (nn.MaxPool2d(3, 2, ceil_mode=True), 64),
    "ceil that adds nothing": (nn.MaxPool2d(2, 2, ceil_mode=True), 64),
    "ceil with padding": (nn.MaxPool2d(3, 3, 1, ceil_mode=True), 36),
    "average cut off": (nn.AvgPool2d(3, 2, 1, True, False), 100),
    "divisor": (nn.AvgPool2d(2, divisor_override=3), 64),
    "uneven": (nn.AdaptiveAvgPool2d(3), 36),
    "uneven maximum": (nn.AdaptiveMaxPool2d((3, 8)), 96),
    "reflect": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), 256),
    "repeated": (nn.Sequential(nn.ReplicationPad2d((0, 1, 2, 0)), nn.Conv2d(4, 4, 3, 2)), 64),
    "zeros before a pool": (nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(2)), 100),
    "large pool": (nn.MaxPool2d(17, 1, 8), 256),
    "lone norm": (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)), 256),
    "clamp": (nn.Hardtanh(-0.5, 0.25), 256),
    "padded": (nn.Sequential(nn.ZeroPad2d((0, 1, 2, 0)), nn.Conv2d(4, 4, 3, 2)), 64),
    "plus one": (PlusOne(), 256),
    "softmax end": (nn.Identity(), 256),
    "logistic end": (nn.Identity(), 256),
}


class Ended(Wrapped):
    """The same network with another last op."""

    def __init__(self, op: nn.Module, features: int, end: str) -> None:
        super().__init__(op, features)
        self.last = nn.Softmax(1) if end.startswith("softmax") else nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.head(self.op(self.conv(x)).flatten(1)))
        return result


@pytest.mark.parametrize("way", ["exported", "scripted"])
@pytest.mark.parametrize("case", SUPPORTED)
def test_supported_op_has_torchs_values(case: str, way: str, tmp_path: Path) -> None:
    """The end of a network, if it is no layer, is left out: its logits are what remains."""
    torch.manual_seed(2)
    op, features = SUPPORTED[case]
    plain = Wrapped(op, features).eval()
    net = Ended(op, features, case).eval() if case.endswith(" end") else plain
    net.load_state_dict(plain.state_dict(), strict=False)
    images = images_for(net, 5, seed=6)
    graph = load(write(net, tmp_path / "model.pt", way), net).graph
    verify(graph)
    np.testing.assert_allclose(run_float(graph, images), torch_logits(plain, images), atol=2e-5)


class ConvHead(nn.Module):
    """A network whose head is a convolution of the whole map."""

    shape = (2, 6, 6)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 3, 3, 2), nn.Conv2d(3, 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(functional.relu(self.conv(x))).flatten(1)
        return result


@pytest.mark.parametrize("way", ["exported", "scripted"])
def test_a_convolution_of_the_whole_map_is_a_head(way: str, tmp_path: Path) -> None:
    net = ConvHead().eval()
    images = images_for(net, 5, seed=6)
    graph = load(write(net, tmp_path / "model.pt", way), net).graph
    assert [n.op for n in graph.nodes] == ["conv2d", "head"]
    np.testing.assert_allclose(run_float(graph, images), torch_logits(net, images), atol=2e-5)


def test_the_frame_of_those_cases_is_supported(tmp_path: Path) -> None:
    net = Wrapped(nn.ReLU()).eval()
    assert len(load(write(net, tmp_path / "model.pt", "exported"), net).graph.nodes) == 2


class Ends(nn.Module):
    """Networks whose end is wrong in one way each."""

    shape = (2, 6, 6)

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end = end
        self.conv = nn.Conv2d(2, 3, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor):  # type: ignore[no-untyped-def]
        x = self.conv(x)
        if self.end == "convolution":
            return x
        features = x.mean((2, 3))
        if self.end == "relu":
            return functional.relu(self.head(features))
        if self.end == "softmax":
            return functional.relu(functional.softmax(self.head(features), 1))
        if self.end == "two":
            return self.head(features), features
        return self.head(features)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("relu", "ends with head (relu); it must end with a linear layer"),
        ("softmax", "scale_pixels (relu); it must end with a linear layer"),
        ("two", "one of them must be the logits: name it, as in --logits 0"),
    ],
)
@pytest.mark.parametrize("way", ["exported", "traced"])
def test_wrong_end_is_a_sentence(end: str, words: str, way: str, tmp_path: Path) -> None:
    net = Ends(end).eval()
    with pytest.raises(ConvertError) as caught:
        headed(load(write(net, tmp_path / "model.pt", way), net).graph)
    assert words in str(caught.value)


@pytest.mark.parametrize("way", ["exported", "traced"])
def test_an_end_in_another_map_is_a_sentence(way: str, tmp_path: Path) -> None:
    """Which needs the task: of an autoencoder's map it would be none."""
    net = Ends("convolution").eval()
    loaded = load(write(net, tmp_path / "model.pt", way), net)
    with pytest.raises(ConvertError, match=r"ends with conv \(conv2d\); it must end with a linear layer"):
        headed(loaded.graph)


class Dead(nn.Module):
    """A layer, and an op that is not supported, whose results nobody reads."""

    shape = (2, 6, 6)

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Conv2d(2, 3, 3)
        self.head = nn.Linear(72, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cumsum(self.unused(x), 1)
        result: torch.Tensor = self.head(x.flatten(1))
        return result


def test_what_nothing_depends_on_is_left_out_and_named(tmp_path: Path) -> None:
    net = Dead().eval()
    path = write(net, tmp_path / "model.pt", "exported")
    with pytest.warns(UserWarning, match="the output does not depend on unused, which is left out"):
        graph = load(path, net).graph
    assert [*graph.layers] == ["head"]


@pytest.mark.parametrize("way", ["exported", "scripted", "module"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_weights_name_the_layer(way: str, value: float, tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=1)
    with torch.no_grad():
        net.blocks[1].project.weight[2, 3] = value  # type: ignore[index, union-attr]
    with pytest.raises(
        ConvertError, match=r"layer blocks.1.project: 1 of 153 values of .* are NaN or infinite"
    ):
        load(write(net, tmp_path / "model.pt", way), net)


@pytest.mark.parametrize("way", ["exported", "scripted"])
def test_training_mode_is_refused(way: str, tmp_path: Path) -> None:
    net = NETWORKS["mobilenet"]().train()
    with pytest.raises(ConvertError, match=r"call model.eval\(\) before"):
        load(write(net, tmp_path / "model.pt", way), net)


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"no such file: .*missing\.pt"):
        load_model(tmp_path / "missing.pt")
    with pytest.raises(ConvertError, match="is not a file"):
        load_model(tmp_path)


def test_files_that_are_no_model(tmp_path: Path) -> None:
    text = tmp_path / "notes.pt"
    text.write_text("hello")
    with pytest.raises(ConvertError, match=r"notes\.pt is not a PyTorch model"):
        load_model(text)
    empty = tmp_path / "empty.pt"
    empty.write_bytes(b"")
    with pytest.raises(ConvertError, match=r"empty\.pt is not a PyTorch model"):
        load_model(empty)
    other = tmp_path / "other.pt"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("a/b.txt", "c")
    with pytest.raises(ConvertError, match=r"other\.pt is a zip file but holds no PyTorch model"):
        load_model(other)
    keras = tmp_path / "net.keras"
    with zipfile.ZipFile(keras, "w") as file:
        file.writestr("config.json", "{}")
        file.writestr("model.weights.h5", "")
    with pytest.raises(ConvertError, match=r"net\.keras is a Keras model; write it as \.tflite or \.onnx"):
        load_model(keras)


@pytest.mark.parametrize("way", ["exported", "scripted", "module"])
def test_damaged_files_are_sentences(way: str, tmp_path: Path) -> None:
    """Cut short, or bytes overwritten at many places: a ConvertError or a valid load, never another error."""
    net = randomise(NETWORKS["idioms"](), seed=1)
    data = write(net, tmp_path / "model.pt", way).read_bytes()
    path = tmp_path / "damaged.pt"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ConvertError, match="damaged"):
        load(path, net)
    refused = 0
    places = 12 if way == "module" else 50
    for at in range(0, len(data), len(data) // places):
        path.write_bytes(data[:at] + b"\xff" * 16 + data[at + 16 :])
        try:
            load(path, net)
        except ConvertError:
            refused += 1
    assert refused > places // 4


class Bomb:
    """Writes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_is_not_executed_without_trust(legacy: bool, tmp_path: Path) -> None:
    path, trace = tmp_path / "bomb.pt", tmp_path / "executed"
    torch.save({"model": Bomb(trace)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ConvertError, match=r"may execute code .*--trust.*torch\.export"):
        load_model(path, input_shape=(1, 8, 8))
    assert not trace.exists()
    with pytest.raises(ConvertError, match="holds a dict"):
        load_model(path, trust=True, input_shape=(1, 8, 8))
    assert trace.exists()


@pytest.mark.parametrize("target", ["data/weights/", "data/constants/", "data/sample_inputs/"])
def test_a_pickle_inside_an_export_is_not_executed(target: str, tmp_path: Path) -> None:
    net = randomise(NETWORKS["idioms"](), seed=1)
    good = write(net, tmp_path / "model.pt", "exported")
    path, trace = tmp_path / "hostile.pt", tmp_path / "executed"
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if target in name and not name.endswith(".json"):
                data = pickle.dumps(Bomb(trace))
            if name.endswith("weights_config.json") and "weights" in target:
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            new.writestr(name, data)
    if "weights" in target:
        with pytest.raises(ConvertError, match="stored as a pickle, which may execute code"):
            load_model(path)
    else:
        load_model(path)
    assert not trace.exists()


def test_a_saved_module_asks_for_what_it_needs(tmp_path: Path) -> None:
    net = randomise(NETWORKS["idioms"](), seed=1)
    path = write(net, tmp_path / "model.pt", "module")
    with pytest.raises(ConvertError, match="--trust"):
        load_model(path, input_shape=(2, 16, 16))
    with pytest.raises(ConvertError, match="--input CxHxW"):
        load_model(path, trust=True)
    with pytest.raises(ConvertError, match=r"torch\.export cannot export model\.pt for an input of 5x16x16"):
        load_model(path, trust=True, input_shape=(5, 16, 16))
    torch.save(net.state_dict(), path)
    with pytest.raises(ConvertError, match="weights at most but no network"):
        load_model(path)


def test_a_saved_module_without_its_class_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(randomise(NETWORKS["idioms"](), seed=1), tmp_path / "model.pt", "module")
    monkeypatch.delattr(torch_networks, "Idioms")
    with pytest.raises(ConvertError, match=r"model\.pt cannot be loaded: .*Idioms.*beside it"):
        load_model(path, trust=True, input_shape=(2, 16, 16))


def test_input_shapes(tmp_path: Path) -> None:
    net = randomise(NETWORKS["mobilenet"](), seed=1)
    path = write(net, tmp_path / "model.pt", "exported")
    with pytest.raises(ConvertError, match="exported for an input of 3x20x24, not 3x32x32"):
        load_model(path, input_shape=(3, 32, 32))
    assert load_model(path).graph.tensors["input"].shape == (20, 24, 3)
    path = write(net, tmp_path / "model.pt", "scripted")
    with pytest.raises(ConvertError, match="--input CxHxW"):
        load_model(path)
    with pytest.raises(
        ConvertError, match=r"layer stem\.0: the convolution wants 3 input channels and gets 1"
    ):
        load_model(path, input_shape=(1, 20, 24))
    assert load_model(path, input_shape=(3, 40, 40)).graph.tensors["stem.0"].shape == (20, 20, 7)
    pooled = write(randomise(NETWORKS["pooled"](), seed=1), tmp_path / "pooled.pt", "traced")
    sizes = [t.shape for t in load_model(pooled, input_shape=(1, 64, 64)).graph.tensors.values()]
    assert sizes[-3][:2] == (3, 2), "adaptive pooling of any size"
    with pytest.raises(ConvertError, match="the input is too small for it"):
        load_model(pooled, input_shape=(1, 2, 2))
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)).eval()
    net.shape = (1, 300, 4)  # type: ignore[assignment]
    wide = load_model(write(net, tmp_path / "wide.pt", "exported")).graph
    assert wide.nodes[1].window == Window(300, 4, 300, 4), "a pooling over more than a byte counts"
