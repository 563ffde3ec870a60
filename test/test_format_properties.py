"""Files and frames that hypothesis makes: what is written is read again, what is damaged is one sentence."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import residual_network

from microtrain.base.archive import open_archive
from microtrain.base.errors import Error
from microtrain.base.npz import read_npz
from microtrain.base.pickles import read_pickle
from microtrain.convert.scheme import Scheme, load, parse
from microtrain.device.protocol import FRAME_LIMIT, Frame, Line, Receiver, encode

MANY = settings(max_examples=300)
LAYERS = [name for name in residual_network().layers if name != "head"]

# ------------------------------------------------------------------------------------------------- schemes

FRACTIONS = st.one_of(
    st.floats(0, 1, exclude_min=True),
    st.sets(st.integers(0, 200), min_size=1).map(lambda s: tuple(sorted(s))),
)
RATE = st.one_of(st.just(0.0), st.floats(float(np.finfo(np.float32).tiny), 1e30))
SCHEMES = st.builds(
    Scheme,
    name=st.text("abcdefgh-019 .:#'\"é", min_size=1, max_size=12).filter(lambda name: bool(name.strip())),
    biases=st.integers(-1, 60),
    weights=st.dictionaries(st.one_of(st.sampled_from(LAYERS), st.integers(-9, 9)), FRACTIONS, max_size=4),
    select=st.sampled_from(("norm", "first")),
    fraction_bits=st.sampled_from((0, 4, 8)),
    loss=st.sampled_from(("cross_entropy", "mse")),
    rates=st.tuples(RATE, RATE, RATE),
    head=st.one_of(
        st.sampled_from(("zeros", "random", "keep")),
        st.lists(st.integers(0, 999), min_size=2, max_size=5, unique=True).map(tuple),
    ),
)


def summary(scheme: Scheme) -> dict[str, Any]:
    """A scheme as plan.json has it."""
    return dict(json.loads(json.dumps(asdict(scheme.summary()))))


def written(scheme: Scheme) -> dict[str, Any]:
    """A scheme as docs/schemes.md has it: channels are named, and layers may be numbers."""
    weights = {
        key: {"channels": list(entry)} if isinstance(entry, tuple) else entry
        for key, entry in scheme.weights.items()
    }
    return {**summary(scheme), "weights": weights}


@MANY
@given(SCHEMES)
def test_a_scheme_that_is_written_is_read_again(scheme: Scheme) -> None:
    text = yaml.safe_dump(written(scheme), allow_unicode=True)
    assert parse(yaml.safe_load(text), "a test", "other") == scheme


def test_schemes_that_differ_are_told_apart() -> None:
    """The comparison above can fail."""
    scheme = Scheme("s", 3, {"layer3": (1, 2)})
    for other in (replace(scheme, biases=4), replace(scheme, weights={"layer3": 0.5})):
        assert parse(written(other), "a test", "s") != scheme


@MANY
@given(st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
                    lambda inner: st.one_of(st.lists(inner, max_size=3),
                                            st.dictionaries(st.text(max_size=5), inner, max_size=3)),
                    max_leaves=6),
       st.sampled_from(sorted(summary(Scheme("s")))))  # fmt: skip
def test_any_value_of_a_key_is_read_or_refused(value: Any, key: str) -> None:
    try:
        scheme = parse({key: value}, "a test", "s")
    except Error as error:
        assert str(error).startswith("a test: ")
        return
    assert parse(written(scheme), "a test", "s") == scheme


@settings(max_examples=200)
@given(text=st.text(max_size=60))
def test_any_text_is_a_scheme_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "scheme.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        assert isinstance(load(path), Scheme)
    except Error as error:
        assert "scheme.yaml" in str(error)


# -------------------------------------------------------------------------------------------- binary files


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, images=np.arange(24, dtype=np.uint8).reshape(2, 3, 4), names=np.array(["a", "bc"]))
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("net/data.json", json.dumps({"a": [1, 2, 3]}))
    return file.getvalue()


def pickled() -> bytes:
    found = {"weights": [1.5, -2, None, True], "name": "net", 3: (b"bytes", {"x": "y" * 40})}
    return pickle.dumps(found, protocol=2)


def take_npz(data: bytes) -> object:
    return {name: array.tolist() for name, array in read_npz(io.BytesIO(data), "a.npz").items()}


def take_archive(data: bytes) -> object:
    with open_archive(io.BytesIO(data), "a.pt") as opened:
        return opened.json("data.json")


def take_pickle(data: bytes) -> object:
    return read_pickle(data, "a.pkl")


READERS = {"npz": (npz(), take_npz), "archive": (archive(), take_archive), "pickle": (pickled(), take_pickle)}


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes of a good file with some changed, cut out or put in."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.integers(0, 6))
        data = data[:at] + draw(st.binary(max_size=6)) + data[at + gone :]
    return data


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_file_is_read_or_one_sentence(kind: str) -> None:
    good, take = READERS[kind]
    refused = []

    @MANY
    @given(damaged(good))
    def reads(data: bytes) -> None:
        try:
            take(data)
        except Error as error:
            assert len(str(error).splitlines()) == 1
            refused.append(str(error))

    take(good)
    reads()
    assert len(refused) > 100


# -------------------------------------------------------------------------------------------------- frames

FRAMES = st.builds(
    Frame,
    kind=st.integers(1, 3),
    sequence=st.integers(0, 255),
    position=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=80),
)
LINES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=60).map(Line)


@MANY
@given(st.lists(st.one_of(FRAMES, LINES), max_size=8), st.integers(1, 50))
def test_what_is_sent_is_received(items: list[Frame | Line], chunk: int) -> None:
    """Lines and frames in any order, in chunks of any size."""
    sent = b"".join(encode(i) if isinstance(i, Frame) else i.text.encode() + b"\r\n" for i in items)
    receiver = Receiver()
    found = [x for at in range(0, len(sent), chunk) for x in receiver.feed(sent[at : at + chunk])]
    assert found == items
    assert receiver.dropped == 0


@MANY
@given(FRAMES, st.data())
def test_a_damaged_frame_never_passes_for_a_whole_one(frame: Frame, data: st.DataObject) -> None:
    sent = encode(frame)
    at = data.draw(st.integers(0, len(sent) - 1))
    wrong = bytes([sent[at] ^ data.draw(st.integers(1, 255))])
    found = list(Receiver().feed(sent[:at] + wrong + sent[at + 1 :] + b"\n" * 200))
    assert not [x for x in found if isinstance(x, Frame) and x.intact]


@MANY
@given(st.binary(max_size=300), st.integers(1, 40))
def test_noise_is_taken_apart_alike_in_any_chunks(noise: bytes, chunk: int) -> None:
    whole, parts = Receiver(), Receiver()
    at_once = list(whole.feed(noise))
    assert [x for at in range(0, len(noise), chunk) for x in parts.feed(noise[at : at + chunk])] == at_once
    assert parts.dropped == whole.dropped


def test_a_frame_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ValueError, match="at most 1024 bytes, not 1025"):
        encode(Frame(1, 0, 0, bytes(FRAME_LIMIT + 1)))


def test_schemes_are_read_from_the_files_that_come_along() -> None:
    for path in sorted((Path(__file__).parents[1] / "tools/convert/schemes").glob("*.yaml")):
        scheme = load(path)
        assert parse(written(scheme), "a test", "other") == replace(scheme, network=None), path.name
