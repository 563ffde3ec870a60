"""`convert --task open-set`: classes by the prototypes of embeddings, and what is none of them."""

from __future__ import annotations

import ctypes
import json
import time
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from autograd import cosine, gradients
from click.testing import CliRunner
from library import OK, Learner, shared, written
from networks import random_network, residual_network
from pio_build import host_program
from test_executor import images, partly_trained, run_both
from test_gradients import LEAST, everything, image
from torch import nn

from lab.networks import of_open_set
from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.base.progress import Bars
from microtrain.base.trained import DISTANCES, SUMS
from microtrain.check_board.probe import probe
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import prototypes
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.reference.numeric import Sgd
from microtrain.convert.reference.prototypes import UNKNOWN, embedding, join
from microtrain.convert.scheme import Scheme
from microtrain.device.cli import main as device_main
from microtrain.device.client import Device
from microtrain.device.learning import imprint
from microtrain.device.link import ProgramPort
from microtrain.device.session import Settings, Silent, pixels
from microtrain.device.weights import unpack
from microtrain.fleet.layout import Layout
from microtrain.samples.source import scan, split
from microtrain.simulate.cli import main as simulate

STILL = Sgd(0.0, 0.0, 0.0, 0, 0)
LENGTH, KNOWN = 48, 3


def looked(graph: Graph, errors: str = "int8") -> Executor:
    """With a sample or two of each class, so that there are distances."""
    executor = Executor(graph, "int8")
    classes = graph.tensors[graph.output].channels
    for step, stored in enumerate(images(graph, 3 * classes)):
        executor.forward(stored)
        executor.backward(step % classes, STILL)
    found = Executor(graph, errors)
    found.env.statistics = executor.env.statistics
    return found


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("label", [UNKNOWN, 2])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, label: int, errors: str) -> None:
    network = random_network(seed) if seed else residual_network()
    executor = looked(everything(of_open_set(network)).graph, errors)
    executor.forward(image(executor.env.graph))
    oracle = gradients(executor, label)
    executor.backward(label, STILL)
    found = {key: cosine(made, oracle[key]) for key, made in executor.env.gradients.items()}
    assert found and min(found.values()) > LEAST[errors], found
    if errors == "fp32":
        sizes = [
            float(np.linalg.norm(executor.env.gradients[key]) / np.linalg.norm(oracle[key])) for key in found
        ]
        assert sizes == pytest.approx([1.0] * len(sizes), rel=1e-3), "not the direction alone"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("fraction_bits", [0, 4])
def test_generated_code_trains_like_the_executor(compiler: str, fraction_bits: int, tmp_path: Path) -> None:
    trained = partly_trained(of_open_set(residual_network()), fraction_bits)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 20)


def test_a_scheme_that_trains_nothing_keeps_prototypes(tmp_path: Path) -> None:
    graph = of_open_set(random_network(1))
    compiled = compile_graph(graph, Scheme("head-only"), graph.tensors[graph.output].channels)
    native = NativeModel(generate(compiled, "a test"), tmp_path)
    run_both(compiled, native, 12)
    assert not any(layer.bias_trained or layer.trained for layer in compiled.graph.layers.values())


def test_prototypes_are_means_and_the_first_sample_changes_nothing_else() -> None:
    executor = Executor(everything(of_open_set(residual_network())).graph)
    statistics, graph = executor.env.statistics, executor.env.graph
    features = prototypes.forward_of(graph).inputs[0]
    weights = {name: state.weight.copy() for name, state in executor.env.state.items()}
    seen = []
    for stored in images(graph, 3):
        logits = executor.forward(stored)
        seen.append(embedding(graph, executor.env.values[features])[0])
        assert np.linalg.norm(seen[-1]) == pytest.approx(1.0, rel=1e-6)
        loss = executor.backward(2, Sgd(0.5, 0.5, 0.5, 1, len(seen)) if len(seen) == 1 else STILL)
        if len(seen) == 1:
            assert loss == pytest.approx(np.log(len(logits))) and np.argmax(logits) == UNKNOWN
            assert all((weights[name] == state.weight).all() for name, state in executor.env.state.items())
    sums, counts = statistics[SUMS][:, :-1], statistics[SUMS][:, -1]
    np.testing.assert_allclose(sums[1] / counts[1], np.mean(seen, axis=0), rtol=1e-5)
    assert counts.tolist() == [0.0, 3.0] + [0.0] * (len(counts) - 2)
    executor.forward(images(graph, 1)[0])
    before = {kind: values.copy() for kind, values in statistics.items()}
    executor.backward(UNKNOWN, STILL)
    assert (statistics[SUMS] == before[SUMS]).all()
    assert (statistics[DISTANCES][:3] == before[DISTANCES][:3]).all(), "it has no prototype of its own"
    assert statistics[DISTANCES][3] == before[DISTANCES][3] + 1


def test_what_is_old_fades() -> None:
    sums = np.zeros((1, 3), np.float32)
    for e in [[1.0, 0.0]] * 40 + [[0.0, 1.0]] * 200:
        join(np.array(e, np.float32), 1, sums)
    assert sums[0, -1] == 32 and sums[0] / 32 == pytest.approx([0.0, 1.0, 1.0], abs=0.01)


# ---------------------------------------------------------------- from the file on


class Embedding(nn.Module):
    """Features of a series; `end` makes of them what the network gives."""

    def __init__(self, *end: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 16, 9, 2, 4), nn.ReLU(), nn.Conv1d(16, 24, 5, 2, 2), nn.ReLU())
        self.pool, self.end = nn.AdaptiveAvgPool1d(1), nn.Sequential(*end)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.end(self.pool(self.body(x)).flatten(1))
        return result


class Length(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(x, dim=1)


def waves(count: int, kind: int, seed: int) -> np.ndarray:
    """Of one shape, at any phase, float32 [count][LENGTH][1]."""
    rng = np.random.default_rng([seed, kind])
    at = np.arange(LENGTH) / (1.5 + 0.9 * kind) + rng.uniform(0, 6.3, (count, 1))
    made: np.ndarray = (np.sin(at) + rng.normal(0, 0.1, at.shape))[:, :, None].astype(np.float32)
    return made


def taught(*end: nn.Module) -> nn.Module:
    """A network that tells some shapes apart; `end`: behind its features."""
    torch.manual_seed(0)
    model, head = Embedding(*end), nn.Linear(24 if not end else 10, 8)
    adam = torch.optim.Adam([*model.parameters(), *head.parameters()], 3e-3)
    x = torch.tensor(np.concatenate([waves(40, kind, 0) for kind in range(8)])).transpose(1, 2)
    for _ in range(60):
        adam.zero_grad()
        nn.functional.cross_entropy(head(model(x)), torch.arange(8).repeat_interleave(40)).backward()
        adam.step()
    return model.eval()


def saved(model: nn.Module, folder: Path) -> Path:
    path = folder / "net.pt2"
    torch.export.save(torch.export.export(model, (torch.zeros(1, 1, LENGTH),)), path)
    return path


def put(folder: Path, kind: int, count: int, seed: int) -> None:
    folder.mkdir(parents=True)
    for number, sample in enumerate(waves(count, kind, seed)):
        np.save(folder / f"{number:03d}.npy", sample)


def run(command: click.Command, *words: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(map(str, words)))
    return result.exit_code, " ".join(result.output.split())


def convert(*words: object) -> tuple[int, str]:
    return run(main, *words)


def sets(folder: Path) -> Path:
    """Two known kinds between those that were learned from, and unknown ones to be tested with."""
    for kind in range(8):
        put(folder / "typical" / str(kind), kind, 5, 1)
    for name, kind in (("slow", 6), ("fast", 1)):
        put(folder / "data/train" / name, kind, 8, 2)
        put(folder / "data/test" / name, kind, 20, 3)
    for kind in (3, 4):
        put(folder / "more" / str(kind), kind, 10, 4)
    (folder / "data/test/unknown").mkdir()
    for file in sorted((folder / "more").rglob("*.npy")):
        file.rename(folder / "data/test/unknown" / f"{file.parent.name}-{file.name}")
    return folder / "data"


def accuracies(folder: Path, model: Path, *more: object) -> tuple[float, float, str]:
    """After a session without options: of each class, and before of all."""
    data = sets(folder)
    asked = (model, "--task", "open-set", "--classes", KNOWN, "--calibration", folder / "typical")
    code, said = convert(*asked, "-o", folder / "out", *more)
    assert code == 0 and "prototypes" in said, said
    words = [folder / "out", "--data", data, "-o", folder / "sim", "--jobs", "1"]
    done = CliRunner().invoke(simulate, list(map(str, words)))
    assert done.exit_code == 0, done.output
    run = json.loads((folder / "sim/results.json").read_text())["runs"][0]
    return run["accuracy"]["before"], run["accuracy"]["after"], said


@pytest.mark.parametrize("end", ["features", "linear", "length"])
def test_a_session_learns_classes_and_refuses_others(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ends = {"features": (), "linear": (nn.Linear(24, 10),), "length": (nn.Linear(24, 10), Length())}[end]
    more = ("--embedding", "output") if end == "linear" else ()
    before, after, said = accuracies(tmp_path, saved(taught(*ends), tmp_path), *more)
    made = {"features": "24 numbers", "linear": "10 numbers", "length": "10 numbers"}[end]
    assert f"embedding {made}" in said and "left out" not in said, said
    assert before == pytest.approx(1 / 3), "all is unknown"
    assert after > 0.85, after
    plan = read_plan(tmp_path / "out/plan.json")
    assert plan.known == KNOWN and plan.classes == KNOWN + 1
    assert "#define MODEL_KNOWN 3" in (tmp_path / "out/model.h").read_text()


def test_a_classifier_gives_its_features(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = saved(Embedding(nn.Linear(24, 7)).eval(), tmp_path)
    put(tmp_path / "typical/a", 1, 8, 0)
    asked = (path, "--task", "open-set", "--classes", 5, "-o", tmp_path / "out")
    code, said = convert(*asked, "--calibration", tmp_path / "typical")
    assert code == 0 and "embedding 24 numbers" in said and "--embedding output takes the 7" in said, said
    kinds = {t.kind: t.shape for t in read_plan(tmp_path / "out/plan.json").trainables.tensors}
    assert kinds[SUMS] == (5, 25) and kinds[DISTANCES] == (5,)
    assert convert(*asked, "--check")[0] == 0
    code, said = convert(*asked, "--calibration", tmp_path / "typical", "--until", "body.0")
    assert code == 0 and "embedding 16 numbers" in said and "--embedding output" not in said, said
    for file in sorted((tmp_path / "typical/a").iterdir())[1:]:
        file.write_bytes(sorted((tmp_path / "typical/a").iterdir())[0].read_bytes())
    code, said = convert(*asked, "--calibration", tmp_path / "typical")
    assert code == 1 and "the same embedding of all 8 samples" in said, said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--task", "open-set"), "needs --classes N"),
        (("--task", "open-set", "--classes", "3", "--head-rows", "0-2"), "in whose place"),
        (("--task", "open-set", "--classes", "3", "--imprint", "8"), "leave it out with --task open-set"),
        (("--embedding", "output"), "add --task open-set"),
        (
            ("--task", "open-set", "--classes", "3", "--until", "body.2", "--embedding", "output"),
            "leave --embedding out",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    path = saved(Embedding(nn.Linear(24, 7)).eval(), tmp_path)
    code, said = convert(path, *words, "-o", tmp_path / "out")
    assert code == 1 and why in said and "Traceback" not in said, said


def test_what_is_in_front_of_the_last_layer_may_be_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "typical/a", 1, 8, 0)
    asked = (
        "--task",
        "open-set",
        "--classes",
        3,
        "--calibration",
        tmp_path / "typical",
        "-o",
        tmp_path / "out",
    )
    path = saved(Embedding(nn.Linear(24, 7), Length()).eval(), tmp_path)
    code, said = convert(path, *asked, "--embedding", "features")
    assert code == 0 and "embedding 24 numbers" in said, said
    path = saved(Embedding(Length()).eval(), tmp_path)
    code, said = convert(path, *asked, "--embedding", "features")
    assert code == 1 and "leave --embedding out" in said, said


def test_other_tasks_still_need_a_linear_end(tmp_path: Path) -> None:
    path = saved(Embedding().eval(), tmp_path)
    put(tmp_path / "typical/a", 1, 8, 0)
    code, said = convert(path, "-o", tmp_path / "out", "--calibration", tmp_path / "typical")
    assert code == 1 and "must end with a linear layer" in said and "--task open-set" in said, said
    path = saved(Embedding(nn.Linear(24, 7), nn.ReLU()).eval(), tmp_path)
    code, said = convert(path, "-o", tmp_path / "out", "--calibration", tmp_path / "typical")
    assert code == 1 and "must end with a linear layer" in said, said


def test_all_alike_embeddings_have_no_centre() -> None:
    graph = random_network(1)
    shape = graph.tensors[graph.nodes[-1].inputs[0]].shape
    with pytest.raises(ConvertError, match="same embedding of all 4 samples"):
        prototypes.centred(graph, np.ones((4, *shape), np.int8))


# ---------------------------------------------------------------- samples


def folders(where: Path, *names: str, files: int = 6) -> Path:
    for name in names:
        (where / name).mkdir(parents=True)
        for k in range(files):
            (where / name / f"{k}.npy").write_bytes(b"")
    return where


def test_unknown_is_label_0_and_may_be_left_out(tmp_path: Path) -> None:
    found = scan(folders(tmp_path / "a", "unknown", "zoe", "anna"), 5, known=4)
    assert found.classes == ("unknown", "anna", "zoe", "class 3", "class 4")
    assert {s.label for s in found.samples if s.path.parent.name == "unknown"} == {0}
    found = scan(folders(tmp_path / "b", "anna"), 5, known=4)
    assert found.classes[:2] == ("unknown", "anna") and {s.label for s in found.samples} == {1}
    training, testing = split(tmp_path / "b", 5, known=4)
    assert len(training.samples) + len(testing.samples) == 6


def test_labels_stay_where_a_list_names_them(tmp_path: Path) -> None:
    """A class that comes later would shift the others, where they are sorted."""
    data = folders(tmp_path / "data", "train/anna", "train/zoe", "train/bob", "test/bob", "test/unknown")
    (data / "labels.txt").write_text("anna\nzoe\nbob\n")
    training, testing = split(data, 5, known=4)
    assert training.classes == testing.classes == ("unknown", "anna", "zoe", "bob", "class 4")
    assert {s.label for s in testing.samples} == {0, 3}
    folders(data, "train/carl")
    with pytest.raises(Error, match=r"holds carl, which .*labels\.txt does not name"):
        split(data, 5, known=4)
    (data / "labels.txt").write_text("anna\nzoe\nbob\nanna\n")
    with pytest.raises(Error, match=r"names anna twice"):
        split(data, 5, known=4)


def test_more_classes_than_there_is_room_for(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"3 classes .*room for 2: .*--classes 3"):
        scan(folders(tmp_path, "a", "b", "c", "unknown"), 3, known=2)


def test_a_fleet_averages_samples_not_means(tmp_path: Path) -> None:
    """A board without a class does not pull its prototype towards nothing; one may keep its own at home."""
    path = saved(Embedding(nn.Linear(24, 7)).eval(), tmp_path)
    put(tmp_path / "typical/a", 1, 8, 0)
    asked = (path, "--task", "open-set", "--classes", 3, "-o", tmp_path / "out")
    assert convert(*asked, "--calibration", tmp_path / "typical")[0] == 0
    plan = read_plan(tmp_path / "out/plan.json")
    layout, part = Layout(plan), plan.find("prototypes", SUMS)
    assert part is not None
    block, rng = bytes(plan.trainables.bytes), np.random.default_rng(0)
    seen = [rng.normal(0, 0.2, (count, 24)).astype(np.float32) for count in (2, 6)]
    values = []
    for own in (*seen, seen[0][:0]):
        sums = np.zeros(part.shape, np.float32)
        sums[0] = [*own.sum(axis=0), len(own)]
        start, end = part.offset, part.offset + part.bytes
        values.append(layout.read(block[:start] + sums.tobytes() + block[end:]))
    mean = unpack(plan, layout.write(np.sum(values, axis=0) // 3, block))["prototypes.sums"][0]
    np.testing.assert_allclose(mean[:-1] / mean[-1], np.concatenate(seen).mean(axis=0), atol=1e-5)
    at_home = Layout(plan, ("head",))
    assert not {SUMS, DISTANCES} & {each.tensor.kind for each in at_home.parts}


# ---------------------------------------------------------------- on a device


def test_a_device_learns_what_the_simulator_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session, what is enrolled without training, and what the device says of itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    data, generated = sets(tmp_path), tmp_path / "out"
    asked = (saved(taught(), tmp_path), "--task", "open-set", "--classes", KNOWN, "-o", generated)
    code, said = convert(*asked, "--calibration", tmp_path / "typical")
    assert code == 0 and "records of" in said, said
    same = ("--seed", 3)
    words = (generated, "--data", data, *same, "-o", tmp_path / "sim", "--jobs", "1")
    assert run(simulate, *words)[0] == 0
    found = json.loads((tmp_path / "sim/results.json").read_text())["runs"][0]
    device = ("--native", host_program(generated, tmp_path), "--plan", generated / "plan.json")
    code, said = run(device_main, *device, "train", data / "train", "--eval", data / "test", *same)
    assert code == 0 and found["trained_sha256"] in said, said
    assert "labels: 1 fast, 2 slow" in said, said
    assert "one look at each sample first" in said and "steps on records" in said, said
    said = run(device_main, *device, "info")[1]
    assert "3 and unknown" in said and "imprint means of embeddings" in said, said
    assert ".npy: unknown (" in run(device_main, *device, "infer", data / "train/fast/000.npy")[1]
    code, said = run(device_main, *device, "eval", data / "test")
    assert code == 0 and "unknown" in said and "class 3" not in said, said
    code, said = run(device_main, *device, "imprint", data / "train", "--eval", data / "test")
    assert code == 0 and "prototypes are of 2 classes from 16 samples" in said, said


def test_what_is_enrolled_changes_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the board's own answers are those of a board: what `check-board` asks it."""
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    data, generated = sets(tmp_path), tmp_path / "out"
    asked = (saved(taught(), tmp_path), "--task", "open-set", "--classes", KNOWN, "-o", generated)
    assert convert(*asked, "--calibration", tmp_path / "typical")[0] == 0
    learned = {t.offset: t for t in read_plan(generated / "plan.json").trainables.tensors}
    training = scan(data / "train", KNOWN + 1, known=KNOWN)
    program = host_program(generated, tmp_path)
    with Device(ProgramPort(program)) as device, Bars() as bars:
        before = device.pull()
        assert imprint(device, training, Settings(), Silent(), pixels(device)) == 2
        after = device.pull()
        changed = {
            learned[max(o for o in learned if o <= i)].kind
            for i in range(len(after))
            if before[i] != after[i]
        }
        assert changed == {SUMS, DISTANCES}
        found = probe(device, time.monotonic, bars, "a program")
    steps = found.groups["training"].values()
    assert not found.ended and all(answer.startswith("ok train") for answer in steps), steps


def test_a_trained_body_goes_back_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prototypes have no place there, and that is said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MICROTRAIN_FLASH", str(tmp_path / "flash"))
    data, generated, model = sets(tmp_path), tmp_path / "out", saved(taught(), tmp_path)
    asked = (model, "--task", "open-set", "--classes", KNOWN, "-o", generated)
    assert convert(*asked, "--calibration", tmp_path / "typical")[0] == 0
    device = ("--native", host_program(generated, tmp_path), "--plan", generated / "plan.json")
    assert run(device_main, *device, "train", data / "train")[0] == 0
    out = ("-o", tmp_path / "all.npz", "--state-dict", tmp_path / "new.pt", "--model", model)
    code, said = run(device_main, *device, "pull", *out)
    assert code == 0 and "no place for prototypes of classes" in said, said
    old, new = torch.export.load(model).state_dict, torch.load(tmp_path / "new.pt", weights_only=True)
    assert any(not torch.equal(old[name], new[name]) for name in old)


def test_the_library_knows_no_class_before_its_first_sample(tmp_path: Path) -> None:
    """The bits of the executor, and a rate of 0 enrols."""
    graph = of_open_set(random_network(1))
    compiled = compile_graph(graph, Scheme("biases", -1), graph.tensors[graph.output].channels)
    written(compiled, "net", tmp_path / "library", tmp_path / "generated")
    learner, executor = Learner(shared(tmp_path / "library"), "net"), Executor(compiled.graph)
    gain, offset = compiled.graph.input.gain, compiled.graph.input.offset
    assert set(gain) == {1.0} and set(offset) == {-128.0}
    assert learner.call("set", 1, ctypes.c_float(0.0)) == OK
    for step, stored in enumerate(images(compiled.graph, 6)):
        shown = (stored.astype(int) + 128).astype(np.uint8)
        label = (0, 2, 2, 1, 0, 2)[step]
        logits = executor.forward(stored)
        assert learner.scores(shown).tobytes() == logits.tobytes()
        assert np.argmax(logits) == UNKNOWN or step > 1
        assert learner.train(shown, label) == np.float32(executor.backward(label, STILL))
    assert learner.trainables() == executor.trainables()
