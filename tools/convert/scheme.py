"""Sparse update schemes: which biases and which weight columns are trained (docs/schemes.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from microtrain.base import plan
from microtrain.base.archive import reason
from microtrain.base.errors import short
from microtrain.base.trained import NOTHING_LEFT_OUT, kept

from . import lite
from .defaults import RATE
from .ir import ConvertError, Graph, Layer, Node
from .lite import LiteResiduals
from .ops import forward_op, saves
from .ops.table import Learns, no_gradient
from .trainables import HeadStart

KEYS = {
    *("name", "network", "biases", "weights", "select", "fraction_bits", "loss", "learning_rate", "head"),
    "lite_residuals",
}
PUBLISHED = Path(__file__).resolve().parent / "schemes"
RATES = ("weight", "bias", "head")
HEADS = ("zeros", "random", "keep")
COUNTED = re.compile(
    r"(?P<what>last|bias)-(?P<count>[1-9][0-9]{0,3})"
)  # schemes by the number of convolutions
LEAST_RATE, MOST_RATE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
MOST_BITS = 4096  # of a number in a scheme file; no key takes one nearly as large
ALL = "all"  # in the place of a layer: every convolution


@dataclass(frozen=True)
class Scheme:
    """What is trained, and how.

    biases        of the last k convolutions; -1: of all
    weights       layer name, convolution index (from the end if negative) or ALL -> fraction of its input
                  channels in (0, 1], or the channels; of two entries for a layer the later one counts
    select        how the channels of a fraction are chosen: "norm" (largest L2 norm) or "first"
    rates         learning rates of weights, biases and head, in real-valued units
    head          the head's start: "zeros", "random", "keep" (the model's own rows), or which of those rows
    lite          which blocks get a lite residual module beside them, that learns; None: none does
    network       name of the only model it is for, None: any
    """

    name: str
    biases: int = 0
    weights: Mapping[str | int, float | tuple[int, ...]] = field(default_factory=dict)
    select: str = "norm"
    fraction_bits: int = 0
    loss: str = "cross_entropy"
    rates: tuple[float, float, float] = (RATE, RATE, RATE)
    head: HeadStart = "zeros"
    network: str | None = None
    lite: LiteResiduals | None = None

    def summary(self) -> plan.Scheme:
        """The scheme as plan.json says it."""
        return plan.Scheme(
            name=self.name,
            biases="all" if self.biases < 0 else self.biases,
            weights={str(layer): part for layer, part in self.weights.items()},
            select=self.select,
            fraction_bits=self.fraction_bits,
            loss=self.loss,
            learning_rate=plan.Rates(*self.rates),
            head=plan.HeadRows(self.head) if isinstance(self.head, tuple) else self.head,
            lite_residuals=None if self.lite is None else plan.LiteResiduals(**vars(self.lite)),
        )


def find(name: Path) -> Scheme:
    """A scheme file, or one that comes with the converter by its name ("mcunet-49kb", "last-6")."""
    published = PUBLISHED / f"{name}.yaml"
    if not name.exists() and name.parent == Path() and not name.suffix:
        if counted := COUNTED.fullmatch(name.name):
            return last(name.name, int(counted["count"]), weights=counted["what"] == "last")
        if published.exists():
            return load(published)
        known = ", ".join(sorted(p.stem for p in PUBLISHED.glob("*.yaml")))
        raise ConvertError(f"there is no scheme {name}: give a YAML file, or one of {known}, last-K, bias-K")
    return load(name)


def last(name: str, count: int, weights: bool) -> Scheme:
    """The biases of the last convolutions of any network and, if asked, all their weights."""
    columns: dict[str | int, float | tuple[int, ...]] = (
        dict.fromkeys(range(-count, 0), 1.0) if weights else {}
    )
    return Scheme(name, count, columns)


class _Loader(yaml.SafeLoader):
    """YAML's plain types, numbers of a length that can be printed, and no key twice.

    Of two entries one would be lost without a word.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ConvertError("aliases such as *name are not read; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = super().construct_mapping(node, deep)
        keys = Counter(self.construct_object(key) for key, _ in node.value)
        twice = next((key for key, count in keys.items() if count > 1), None)
        if twice is not None:
            raise ConvertError(f"the key {short(twice)} stands there twice; one entry is enough")
        return found

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        number = super().construct_yaml_int(node)
        if number.bit_length() > MOST_BITS:
            raise ConvertError(f"the number {node.value[:20]}... is too large")
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def load(path: Path) -> Scheme:
    """Read a scheme file; ConvertError names the file and the key that is wrong."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConvertError(f"cannot read the scheme {path}: {error.strerror}") from error
    except ConvertError as error:
        raise ConvertError(f"{path}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = reason(error)
        raise ConvertError(f"{path} is not a YAML file ({line}); docs/schemes.md shows one") from error
    if not isinstance(data, dict):
        raise ConvertError(f"{path} holds no scheme: it must be a YAML mapping, see docs/schemes.md")
    return parse(data, str(path), path.stem)


def parse(data: Mapping[str, Any], where: str, name: str) -> Scheme:
    """Check a scheme's keys and values. `where` names it in messages."""
    unknown = sorted(str(k) for k in data if k not in KEYS)
    if unknown:
        raise ConvertError(
            f"{where}: unknown key {short(unknown[0])}; the keys are {', '.join(sorted(KEYS))}"
        )
    scheme = Scheme(
        name=_text(data.get("name", name), "name", where),
        network=_text(data["network"], "network", where) if "network" in data else None,
        biases=_biases(data.get("biases", 0), where),
        weights=_weights(data.get("weights"), where),
        select=_choice(data, "select", ("norm", "first"), where),
        fraction_bits=_choice(data, "fraction_bits", (0, 4, 8), where),
        loss=_choice(data, "loss", ("cross_entropy", "mse"), where),
        head=_head(data.get("head", HEADS[0]), where),
        lite=lite.parse(data.get("lite_residuals"), where),
    )
    return replace(scheme, rates=_rates(data.get("learning_rate", RATE), where))


def _text(value: Any, key: str, where: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ConvertError(f"{where}: {key} is {short(value)}; it must be text, a number or a date in quotes")


def _choice(data: Mapping[str, Any], key: str, allowed: tuple[Any, ...], where: str) -> Any:
    value = data.get(key, allowed[0])
    if type(value) is not type(allowed[0]) or value not in allowed:
        raise ConvertError(
            f"{where}: {key} is {short(value)}; it must be one of {', '.join(map(str, allowed))}"
        )
    return value


def _biases(value: Any, where: str) -> int:
    if value == "all":
        return -1
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ConvertError(
        f'{where}: biases is {short(value)}; it must be "all" or the number of last convolutions, 0 or more'
    )


def _weights(value: Any, where: str) -> dict[str | int, float | tuple[int, ...]]:
    if value is None:
        return {}
    if value == ALL:
        return {ALL: 1.0}
    if not isinstance(value, Mapping):
        raise ConvertError(
            f"{where}: weights must map layers to fractions, as in `blocks.2.expand: 0.5`, or be `all`"
        )
    for key in value:
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise ConvertError(f"{where}: weights names the layer {short(key)}; put the name in quotes")
        if isinstance(key, str) and not key.strip():
            raise ConvertError(f"{where}: weights has an entry without a layer's name: {short(value[key])}")
    return {key: _columns(key, entry, where) for key, entry in value.items()}


def _columns(key: Any, entry: Any, where: str) -> float | tuple[int, ...]:
    if isinstance(entry, Mapping) and set(entry) == {"channels"}:
        channels = entry["channels"]
        ok = isinstance(channels, list) and channels and all(type(c) is int and c >= 0 for c in channels)
        if ok and len(set(channels)) == len(channels):
            return tuple(sorted(channels))
        raise ConvertError(
            f"{where}: channels of {short(key)} must be a list of different numbers, 0 or more"
        )
    if isinstance(entry, int | float) and not isinstance(entry, bool) and 0.0 < entry <= 1.0:
        return float(entry)
    raise ConvertError(
        f"{where}: the fraction of {short(key)} is {short(entry)}; it must be in (0, 1], "
        "or {channels: [...]}"
    )


def _head(value: Any, where: str) -> HeadStart:
    if isinstance(value, Mapping) and set(value) == {"rows"}:
        rows = value["rows"]
        if isinstance(rows, list) and all(type(r) is int and r >= 0 for r in rows):
            return head_rows(tuple(rows), where)
        raise ConvertError(f"{where}: the rows of head must be a list of numbers, 0 or more")
    if isinstance(value, str) and value in HEADS:
        return value
    raise ConvertError(
        f"{where}: head is {short(value)}; it must be one of {', '.join(HEADS)}, or {{rows: [...]}}"
    )


def head_rows(rows: tuple[int, ...], where: str) -> tuple[int, ...]:
    """The rows, after a check that there are two or more and none is named twice: ConvertError."""
    if len(rows) < 2:
        raise ConvertError(f"{where}: a head needs two rows at least, not {len(rows)}")
    twice = next((r for r, count in Counter(rows).items() if count > 1), None)
    if twice is not None:
        raise ConvertError(f"{where}: row {twice} of the head stands there twice; a row makes one class")
    return rows


def _rates(value: Any, where: str) -> tuple[float, float, float]:
    table = value if isinstance(value, Mapping) else dict.fromkeys(RATES, value)
    unknown = [k for k in table if k not in RATES]
    if unknown:
        raise ConvertError(
            f"{where}: unknown learning rate {short(unknown[0])}; there are {', '.join(RATES)}"
        )
    rates = []
    for key in RATES:
        rate = table.get(key, RATE)
        if not _is_rate(rate):
            raise ConvertError(
                f"{where}: the learning rate of {key} is {short(rate)}; it must be 0 or a number "
                f"from {LEAST_RATE:.3g} to {MOST_RATE:.3g}, the float32 range"
            )
        rates.append(float(rate))
    return rates[0], rates[1], rates[2]


def _is_rate(value: Any) -> bool:
    """True for 0 and for what float32 holds as a finite normal number above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == 0 or LEAST_RATE <= value <= MOST_RATE


def apply(graph: Graph, scheme: Scheme) -> Graph:
    """Mark in the graph's layers what the scheme trains."""
    if scheme.network not in (None, graph.name):
        raise ConvertError(
            f"scheme {scheme.name} was made for {scheme.network}, not for {graph.name}: choose another scheme"
        )
    names = convolutions(graph)
    layers = dict(graph.layers)
    first = 0 if scheme.biases < 0 else max(0, len(names) - scheme.biases)
    if scheme.biases > len(names):
        raise ConvertError(
            f"scheme {scheme.name}: it trains the biases of {scheme.biases} convolutions, "
            f"but {graph.name} has {len(names)}"
        )
    for name in names[first:]:
        layers[name] = replace(layers[name], bias_trained=True)
    for key, entry in scheme.weights.items():
        for name in names if key == ALL else [_layer_name(key, names, graph, scheme)]:
            channels = _select(layers[name], name, entry, scheme)
            layers[name] = replace(layers[name], trained=channels, fraction_bits=scheme.fraction_bits)
    return graph.replace(layers=layers)


def convolutions(graph: Graph) -> list[str]:
    """Layer names of the convolutions (hidden linear layers included) in forward order, without the head.

    What conversion made of an average with a scale of its own is none: the file has no place for its weights.
    Nor are those that no gradient reaches, or those that the model uses more than once.
    """
    out_of_reach = beyond(graph)
    nodes = (n for n in graph.forward_layers if n.layer and not saves(n) and _learns(n))
    found = {n.layer: graph.layers[n.layer] for n in nodes if n.layer and n.layer not in out_of_reach}
    return [name for name, layer in found.items() if layer.source.weight and not layer.shares]


def beyond(graph: Graph) -> dict[str, str]:
    """Layers that no gradient reaches, and the layer that lets none pass to them."""
    reached, closed, found = {graph.output}, dict[str, str](), dict[str, str]()
    for node in reversed([n for n in graph.forward_layers if not saves(n)]):
        made = node.outputs[0]
        if made not in reached and node.layer:
            found[node.layer] = closed.get(made, node.name)
        if made in reached and forward_op(node).gradient is not no_gradient:
            reached.update(node.inputs)
        else:
            closed.update(dict.fromkeys(node.inputs, closed.get(made, node.name)))
    return found


def _learns(node: Node) -> bool:
    return forward_op(node).learns is Learns.COLUMNS


def _layer_name(key: str | int, names: list[str], graph: Graph, scheme: Scheme) -> str:
    if isinstance(key, int) and -len(names) <= key < len(names):
        return names[key]
    if key in names:
        return str(key)
    if key in (closed := beyond(graph)):
        raise ConvertError(
            f"scheme {scheme.name}: {key} stands before {closed[str(key)]}, through which no gradient "
            "passes: train what stands behind it, or the head"
        )
    if key in graph.layers and graph.layers[str(key)].shares:
        raise ConvertError(
            f"scheme {scheme.name}: the model uses the weights of {key} more than once, so they stay frozen: "
            "train another layer, or give each use weights of its own"
        )
    known = f"{names[0]} ... {names[-1]}" if len(names) > 8 else ", ".join(names) or "none that learns"
    raise ConvertError(
        f"scheme {scheme.name}: {graph.name} has no convolution {short(key)}; there are {known} "
        f"(or numbers 0 to {len(names) - 1}, from the end -1 to {-len(names)})"
    )


def _select(layer: Layer, name: str, entry: float | tuple[int, ...], scheme: Scheme) -> tuple[int, ...]:
    """The trained channels of a layer, sorted."""
    if isinstance(entry, tuple):
        return _named(layer, name, entry, scheme)
    count = int(layer.columns * entry + 0.5) or int(layer.columns == 1)
    if count == 0:
        raise ConvertError(
            f"scheme {scheme.name}: {entry:g} of the {layer.columns} channels of {name} is none; "
            f"the smallest fraction that trains one is {1 / layer.columns:.3g}"
        )
    if scheme.select == "first":
        return tuple(range(count))
    order = np.argsort(-column_norms(layer), kind="stable")
    return tuple(sorted(int(c) for c in order[:count]))


def _named(layer: Layer, name: str, numbers: tuple[int, ...], scheme: Scheme) -> tuple[int, ...]:
    """The channels of these numbers in the model, those that are left out aside."""
    gone = layer.source.left_out or NOTHING_LEFT_OUT
    missing = gone.outputs if layer.depthwise else gone.inputs
    known = layer.columns + len(missing)
    if numbers[-1] >= known:
        raise ConvertError(
            f"scheme {scheme.name}: channel {numbers[-1]} of {name} does not exist; "
            f"it has channels 0 to {known - 1}"
        )
    chosen = set(numbers) - set(missing)
    if not chosen:
        raise ConvertError(
            f"scheme {scheme.name}: no input changes the channels that it trains of {name}, so they are left "
            "out: choose others"
        )
    return tuple(place for place, number in enumerate(kept(layer.columns, missing)) if number in chosen)


def column_norms(layer: Layer) -> np.ndarray:
    """L2 norm of the real-valued weights of each input channel (depthwise: channel), float64."""
    assert layer.weight_scale is not None
    shape = (-1,) + (1,) * (layer.weight.ndim - 1)
    squared = (layer.weight.astype(np.float64) * layer.weight_scale.reshape(shape)) ** 2
    axes = (1, 2) if layer.depthwise else (0, 1, 2)
    result: np.ndarray = np.sqrt(squared.sum(axis=axes))
    return result
