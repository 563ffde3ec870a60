"""Windows that overlap: what is kept from one to the next gives the very bits of a whole window."""

from __future__ import annotations

import ctypes
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from library import ARGUMENT, OK, ORDER, Learner, shared, written
from pio_build import build, host_program
from torch import nn

from microtrain.base.errors import Error
from microtrain.base.plan import read_plan
from microtrain.base.sound import LogMel, parse
from microtrain.convert.cli import main
from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.memory.check_plan import check_plan
from microtrain.convert.memory.replay import Request, record_bytes
from microtrain.convert.ops import hop
from microtrain.convert.ops.stream import stages
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import ALL, Scheme
from microtrain.device.client import Device
from microtrain.device.errors import AnswerError
from microtrain.device.link import ProgramPort
from microtrain.device.protocol import SOUND, Frame, encode
from microtrain.emulator import EmulatedPort
from microtrain.native.model import Model, Sgd, compile_model

CLASSES, SLIDES = 4, 4
HEAD, BIASES = Scheme("head-only"), Scheme("biases", biases=2)
FULL = Scheme("full", biases=-1, weights={ALL: 1.0}, fraction_bits=4)
REMEMBERED = Request(records=8)
FRONT = "log-mel:rate=8000,frame=128,hop=64,bands=12"


def padded() -> nn.Sequential:
    """Like the keyword network of MLPerf Tiny: padding above and below at every layer."""
    layers = [nn.Conv2d(1, 8, (10, 4), 2, (4, 1)), nn.ReLU()]
    for act in (nn.ReLU(), nn.LeakyReLU(0.1)):
        layers += [nn.Conv2d(8, 8, 3, 1, 1, groups=8), act, nn.Conv2d(8, 8, 1), nn.ReLU()]
    return nn.Sequential(*layers)


def open_ended() -> nn.Sequential:
    """No padding over time, a stride behind some layers, and a pooling that model.c makes rows of."""
    narrow = [nn.Conv2d(1, 8, (3, 4)), nn.ReLU(), nn.Conv2d(8, 8, (5, 1), groups=8), nn.ReLU()]
    return nn.Sequential(*narrow, nn.MaxPool2d((2, 1)), nn.Conv2d(8, 8, (3, 1)), nn.ReLU())


def to_one() -> nn.Sequential:
    """Like the streaming wake word of MLPerf Tiny: the layers end in one row, so that nothing of it stays."""
    sizes = ((1, 8, (3, 12)), (8, 8, (5, 1)), (8, 8, (10, 1)), (8, 8, (9, 1)), (8, 6, 1))
    return nn.Sequential(*(layer for size in sizes for layer in (nn.Conv2d(*size), nn.ReLU())))


def strided() -> nn.Sequential:
    """A stride longer than its kernel, and rows at the end of a window that no output reads."""
    skipping = [nn.Conv2d(1, 8, (1, 3), (2, 1)), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, (1, 0)), nn.ReLU()]
    return nn.Sequential(*skipping, nn.Conv2d(8, 8, (2, 1), (3, 1)), nn.ReLU())


NETWORKS = {f.__name__: f for f in (padded, open_ended, to_one, strided)}


def quantized(name: str, rows: int, folder: Path) -> Graph:
    torch.manual_seed(1)
    body = NETWORKS[name]()
    features = body(torch.zeros(1, 1, rows, 12)).numel()
    layers = nn.Sequential(body, nn.Flatten(), nn.Linear(features, CLASSES)).eval()
    path = folder / f"{name}{rows}.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(layers, (torch.zeros(1, 1, rows, 12),)), path)
    images = np.random.default_rng(0).integers(0, 256, (8, rows, 12, 1)).astype(np.uint8)
    return quantize_model(load_model(path).graph, images, Choices())


def native(compiled: Compiled, folder: Path) -> Model:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generate(compiled, "a test").files.items():
        (folder / name).write_text(text)
    return Model(
        folder, compile_model(folder, folder, ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover"))
    )


def stored(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (rows, 12, 1)).astype(np.int8)


CASES = [
    ("padded", 31, 2, HEAD, Passes(), True),
    ("padded", 31, 6, BIASES, Passes(imprint=4), True),
    ("padded", 49, 20, HEAD, Passes(strip=8), True),
    ("padded", 31, 3, HEAD, Passes(), False),
    ("padded", 31, 18, HEAD, Passes(), False),
    ("padded", 31, 2, FULL, Passes(), False),
    ("padded", 31, 5, HEAD, Passes(fused=False), False),
    ("open_ended", 30, 2, HEAD, Passes(strip=4), True),
    ("open_ended", 30, 28, HEAD, Passes(), True),
    ("open_ended", 30, 4, HEAD, Passes(arriving=False), False),
    ("to_one", 26, 1, HEAD, Passes(strip=2), True),
    ("to_one", 26, 7, BIASES, Passes(), True),
    ("to_one", 26, 25, HEAD, Passes(), True),
    ("strided", 27, 6, HEAD, Passes(), True),
    ("strided", 28, 6, HEAD, Passes(strip=4), True),
    ("strided", 29, 12, HEAD, Passes(), True),
    ("strided", 27, 4, HEAD, Passes(), False),
]


@pytest.mark.parametrize(("name", "rows", "by", "scheme", "passes", "goes"), CASES)
def test_a_window_that_moved_is_a_whole_one(
    name: str, rows: int, by: int, scheme: Scheme, passes: Passes, goes: bool, tmp_path: Path
) -> None:
    graph = hop.checked(quantized(name, rows, tmp_path), by)
    compiled = compile_graph(graph, scheme, CLASSES, passes)
    assert hop.kept(compiled.graph).goes == goes, hop.sentence(compiled.graph)
    model, series = native(compiled, tmp_path / "model"), stored(rows + SLIDES * by)
    for step in range(2):  # so that a head that is zero does not make all windows alike
        model.forward(series[:rows], True)
        model.backward(step, Sgd(0.1, 0.1, 0.1, 1, step))
    model.forward(series[:rows], False)
    found = []
    for end in range(rows + by, len(series) + 1, by):
        model.slide(series[end - by : end])
        model.lib.model_forward(0)
        found.append(model.logits())
    whole = [model.forward(series[k * by : k * by + rows], False) for k in range(1, SLIDES + 1)]
    np.testing.assert_array_equal(np.array(found).view(np.uint32), np.array(whole).view(np.uint32))
    assert len({logits.tobytes() for logits in whole}) == SLIDES, "all windows give the same"


def record(model: Model, size: int) -> bytes:
    """What a record keeps of the window that is in."""
    kept = (ctypes.c_uint8 * size)()
    model.lib.model_front()
    model.lib.model_keep(kept)
    return bytes(kept)


@pytest.mark.parametrize(("name", "rows", "by", "cut"), [("padded", 31, 2, 0), ("strided", 28, 6, 1)])
def test_a_record_of_a_window_that_moved_is_that_of_a_whole_one(
    name: str, rows: int, by: int, cut: int, tmp_path: Path
) -> None:
    """Where a record holds the window itself, and where it holds what the first layers made of it."""
    graph = hop.checked(quantized(name, rows, tmp_path), by)
    compiled = compile_graph(graph, HEAD, CLASSES, Passes(imprint=4, replay=REMEMBERED))
    assert compiled.graph.cut == cut
    model, series = native(compiled, tmp_path / "model"), stored(rows + SLIDES * by)
    size, found = record_bytes(compiled.graph), []
    model.forward(series[:rows], False)
    for end in range(rows + by, len(series) + 1, by):
        model.slide(series[end - by : end])
        found.append(record(model, size))
        model.rest_of_record(False)
    for k in range(1, SLIDES + 1):
        model.enter(series[k * by : k * by + rows])
        assert record(model, size) == found[k - 1]
    assert len(set(found)) == SLIDES


@pytest.mark.parametrize(("name", "rows", "by"), [(c[0], c[1], c[2]) for c in CASES if c[5]])
def test_what_is_kept_is_what_will_be_read(name: str, rows: int, by: int, tmp_path: Path) -> None:
    """Row by row: what of a window no output has used up, and what of the result stays."""
    graph = compile_graph(hop.checked(quantized(name, rows, tmp_path), by), HEAD, CLASSES).graph
    found, kept = hop.kept(graph), 0
    real, shift = rows, by
    for stage in stages(graph.nodes[0].parts):
        window = stage.window
        _, width, channels = graph.tensors[stage.first.inputs[0]].shape
        made = sum(row * window.stride_h + window.kh <= real + window.pad_h for row in range(rows))
        unread = range(max(made * window.stride_h, shift), real + window.pad_h)
        kept += 12 + -(-len(unread) * width * channels // 4) * 4
        real, shift = made, shift // window.stride_h
    out = graph.tensors[graph.nodes[0].outputs[0]]
    kept += (max(real - shift, 0) - found.top) * out.shape[1] * out.shape[2]
    kept += -(-rows * 12 // 4) * 4 if found.again else 0
    assert hop.memory_bytes(graph) == kept


def test_padding_above_is_made_anew(tmp_path: Path) -> None:
    """By hand: of 31 rows the first layer makes 15. Two of them see padding above, then one more a layer."""
    graph = hop.checked(quantized("padded", 31, tmp_path), 2)
    found = hop.kept(compile_graph(graph, HEAD, CLASSES).graph)
    assert (found.top, found.again) == (4, 2 * 5 + 10 - 4)
    for by in (0, 31, 40):
        with pytest.raises(ConvertError, match=r"have 31 rows and cannot move by \d+ .* takes 1..30"):
            hop.checked(graph, by)


@pytest.mark.parametrize("imprint", [0, 4])
def test_a_plan_that_spoils_what_is_kept_is_refused(imprint: int, tmp_path: Path) -> None:
    graph = hop.checked(quantized("to_one", 26, tmp_path), 1).replace(sound=parse(FRONT))
    compiled = compile_graph(graph, HEAD, CLASSES, Passes(imprint=imprint))
    check_plan(compiled.graph, compiled.plan)
    first, head = compiled.graph.nodes[0].outputs[0], compiled.graph.output
    for name in (hop.NAME, "sound"):
        for tensor, where in ((head, "an inference|statistics"), (first, "step 0")):
            placed = dict(compiled.plan.placements)
            placed[tensor] = replace(placed[tensor], offset=placed[name].offset)
            with pytest.raises(ConvertError, match=rf"the memory of {name} overlaps ({where})|statistics"):
                check_plan(compiled.graph, replace(compiled.plan, placements=placed))


def listening(folder: Path, name: str = "padded", by: int = 4, replay: Request | None = None) -> Compiled:
    """A model with a front end, and with a buffer of records if one is asked for."""
    graph = hop.checked(quantized(name, 31, folder), by).replace(sound=parse(FRONT))
    compiled = compile_graph(graph, BIASES, CLASSES, Passes(imprint=4, replay=replay))
    return replace(compiled, records=replay.size(graph, None)) if replay else compiled


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_for(listening(tmp_path_factory.mktemp("hop")), tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = listening(tmp_path_factory.mktemp("hop"), "to_one", replay=REMEMBERED)
    return written_for(compiled, tmp_path_factory.mktemp("made"))


def written_for(compiled: Compiled, folder: Path) -> Path:
    """As a library, and as a program for this machine."""
    written(compiled, "listener", folder / "library", folder / "generated")
    host_program(folder / "generated", folder)
    return folder


def sound(count: int, seed: int = 0) -> np.ndarray:
    made: np.ndarray = np.rint(np.random.default_rng(seed).normal(0, 3000, count)).astype(np.int16)
    return made


def test_the_firmware_hears_only_what_is_new(made: Path) -> None:
    """A mixture of windows that move, come whole, are learned and are looked at; another device, on which all
    come whole, says the same."""
    rng, front = np.random.default_rng(5), parse(FRONT)
    with Device(ProgramPort(made / "program")) as device, Device(ProgramPort(made / "program")) as other:
        assert device.info.hop == 4
        whole, new = front.samples(31), 4 * front.hop
        series, at, moved = sound(whole + 60 * new), 0, 0
        device.infer(series[:whole])
        for k in range(50):
            window = series[at : at + whole]
            choice = rng.integers(6)
            if choice == 0:
                assert device.train(window, k % CLASSES) == other.train(window, k % CLASSES)
                with pytest.raises(AnswerError, match="no window to move on"):
                    device.follow(series[at + whole : at + whole + new])
                device.infer(window)
            elif choice == 1:
                assert device.imprint(window, k % CLASSES) == other.imprint(window, k % CLASSES)
            at, moved = at + new, moved + 1
            found = device.follow(series[at + whole - new : at + whole]).logits
            wanted = other.infer(series[at : at + whole]).logits
            np.testing.assert_array_equal(found, wanted)
        assert device.sha() == other.sha()


def test_windows_that_move_become_records(remembering: Path) -> None:
    """Looks at windows that moved, or came whole, and steps on their records: the same bits."""
    front = parse(FRONT)
    whole, new = front.samples(31), 4 * front.hop
    series = sound(whole + 12 * new)
    with (
        Device(ProgramPort(remembering / "program")) as moving,
        Device(ProgramPort(remembering / "program")) as other,
    ):
        assert moving.info.records == REMEMBERED.records
        moving.infer(series[:whole])
        for k in range(1, 13):
            at = k * new
            moving.exchange("slide")
            moving._frames.send_samples(series[at + whole - new : at + whole], whole - new, whole)
            answer = moving._talk.command(f"imprint {k % CLASSES}", "ok imprint")
            assert answer.values(int, int)[1] == other.imprint(series[at : at + whole], k % CLASSES)
        for device in (moving, other):
            device.imprint_head()
            head = device.sha()
            device.exchange("rate 0.01")  # noise teaches nothing: with more the guard goes back
            device.rehearse(16)
            assert device.sha() != head
            assert device.stats()["records_held"] == str(REMEMBERED.records)
        assert moving.sha() == other.sha()
        with pytest.raises(AnswerError, match="no window to move on"):
            moving.exchange("slide")


def test_rows_go_on_where_rows_came(made: Path) -> None:
    front = parse(FRONT)
    with Device(ProgramPort(made / "program")) as device:
        rows = np.random.default_rng(2).integers(0, 256, (39, 12, 1)).astype(np.uint8)
        device.train(rows[:31], 1)
        wanted = device.infer(rows[8:39]).logits
        device.infer(rows[:31])
        device.follow(rows[31:35])
        np.testing.assert_array_equal(device.follow(rows[35:]).logits, wanted)
        refused_sound(device, front.samples(27))
        with pytest.raises(AnswerError, match="rows missing 4"):
            device._talk.command("infer", "ok infer")


def refused_sound(device: Device, at: int) -> None:
    """A window that moves on from rows has no sound to go on with."""
    device.exchange("slide")
    device._talk.send(encode(Frame(SOUND, 1, at, bytes(64))))
    with pytest.raises(AnswerError, match="follow what was heard"):
        device._talk.answer("sound", "ok sound")


def test_sound_goes_on_only_where_all_was_sound(made: Path) -> None:
    front, rows = parse(FRONT), np.zeros((30, 12, 1), np.uint8)
    with Device(ProgramPort(made / "program")) as device:
        device._talk.command("image", "ok image")
        device._frames.send_frame(SOUND, 0, bytes(2 * front.frame), "ok sound 0", "sound")
        device._frames.send_image_rows(rows, 1)
        device.exchange("infer")
        refused_sound(device, front.samples(27))


@pytest.mark.parametrize("between", ["image", "selftest", "pattern 3", "reset", "imprint head", "slide"])
def test_nothing_goes_on_behind_what_uses_the_memory(made: Path, between: str) -> None:
    rows = np.random.default_rng(2).integers(0, 256, (31, 12, 1)).astype(np.uint8)
    with Device(ProgramPort(made / "program")) as device:
        with pytest.raises(AnswerError, match="`infer` first"):
            device.exchange("slide")
        device.imprint(rows, 1)
        device.exchange(between)
        with pytest.raises(AnswerError, match="no window to move on"):
            device.exchange("slide")


def test_a_model_without_windows_says_so(tmp_path: Path) -> None:
    compiled = compile_graph(quantized("to_one", 26, tmp_path), HEAD, CLASSES)
    written(compiled, "plain", tmp_path / "library", tmp_path / "generated")
    host_program(tmp_path / "generated", tmp_path)
    with Device(ProgramPort(tmp_path / "program")) as device:
        with pytest.raises(Error, match="convert the model with --hop"):
            device.follow(np.zeros((1, 12, 1), np.uint8))
        with pytest.raises(AnswerError, match="unknown"):
            device.exchange("slide")
    learner = Learner(shared(tmp_path / "library"), "plain")
    assert (learner.sizes.hop_rows, learner.sizes.hop_samples) == (0, 0)
    assert learner.feed(np.zeros((26, 12, 1), np.uint8)) == OK
    assert learner.call("predict", None, None) == OK and learner.call("slide") == ARGUMENT


def fed(learner: Learner, x: np.ndarray, at: int) -> None:
    part = np.ascontiguousarray(x)
    assert learner.call("feed_sound", at, ctypes.c_void_p(part.ctypes.data), len(x)) == OK


def test_the_library_goes_on_as_the_firmware_does(made: Path) -> None:
    front: LogMel = parse(FRONT)
    learner = Learner(shared(made / "library", flags=("-O2", "-fsanitize=undefined")), "listener")
    whole, new = learner.sizes.sound_samples, learner.sizes.hop_samples
    assert (whole, new, learner.sizes.hop_rows) == (front.samples(31), 4 * front.hop, 4)
    series, scores = sound(whole + 3 * new, 7), np.zeros(CLASSES, np.float32)
    out = scores.ctypes.data_as(ctypes.c_void_p)
    assert learner.call("slide") == ORDER
    fed(learner, series[:whole], 0)
    assert learner.call("slide") == ORDER and learner.call("train", 1, None) == OK
    assert learner.call("slide") == ORDER
    wanted = []
    for k in range(4):
        fed(learner, series[k * new : k * new + whole], 0)
        assert learner.call("predict", out, None) == OK
        wanted.append(scores.copy())
    fed(learner, series[:whole], 0)
    assert learner.call("predict_begin") == OK and learner.call("slide") < 0
    learner.finish(500)
    for k in range(1, 4):
        assert learner.call("slide") == OK and learner.state().rows_missing == 4
        fed(learner, series[whole + (k - 1) * new : whole + k * new], whole - new)
        assert learner.call("predict", out, None) == OK
        np.testing.assert_array_equal(scores, wanted[k])


@pytest.mark.parametrize(("name", "by", "work"), [("padded", 4, 3000), ("padded", 3, 1), ("to_one", 4, 1)])
def test_rows_in_pieces_go_on_too(name: str, by: int, work: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(3).integers(0, 256, (31 + 3 * by, 12, 1)).astype(np.uint8)
    graph = hop.checked(quantized(name, 31, tmp_path), by)
    compiled = compile_graph(graph, HEAD, CLASSES, Passes(strip=2))
    written(compiled, "net", tmp_path / "lib", tmp_path / "made")
    learner = Learner(shared(tmp_path / "lib"), "net")
    learner.train(rows[:31], 1)
    size = hop.memory_bytes(compiled.graph)
    end, behind = compiled.plan.placements[hop.NAME].offset + size, -size % 8
    ctypes.memset(learner.arena, 0xA5, learner.sizes.arena_bytes)
    wanted = [learner.scores(rows[by * k : by * k + 31]) for k in range(4)]
    found = [learner.scores_in_pieces(rows[:31], work)]
    out = np.zeros(CLASSES, np.float32)
    for k in range(1, 4):
        assert learner.call("slide") == OK
        for y in range(31 - by, 31):
            row = np.ascontiguousarray(rows[by * k + y])
            assert learner.call("feed_row_begin", y, ctypes.c_void_p(row.ctypes.data)) == OK
            learner.finish(work)
        assert learner.call("predict", out.ctypes.data_as(ctypes.c_void_p), None) == OK
        found.append(out.copy())
    np.testing.assert_array_equal(found, wanted)
    assert bytes(learner.arena)[end : end + behind] == b"\xa5" * behind, "written behind what is kept"
    assert behind or name != "padded"


def conversion(folder: Path) -> list[str]:
    """Words of a conversion, but for how far a window moves."""
    quantized("padded", 31, folder)
    (folder / "data").mkdir()
    for k in range(4):
        np.save(folder / "data" / f"{k}.npy", stored(31, k).view(np.uint8) ^ 128)
    words = [folder / "padded31.pt2", "--scheme", "head-only", "--calibration", folder / "data"]
    return [*map(str, words), "-o", str(folder / "out")]


@pytest.mark.parametrize(("budget", "rows"), [((), 8), (("--budget-sram", "18"), 4)])
def test_as_many_rows_enter_anew_as_the_budget_allows(
    budget: tuple[str, ...], rows: int, tmp_path: Path
) -> None:
    words = [*conversion(tmp_path), "--imprint", "off", "--hop", "2", *budget]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert f"NULL, 5, {rows}, 0}};" in (tmp_path / "out/model.c").read_text()


def test_conversion_says_what_stays(tmp_path: Path) -> None:
    words = conversion(tmp_path)
    result = CliRunner().invoke(main, [*words, "--hop", "2"])
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "windows move by 2 of 31 rows; what 0.8 makes of the others stays, 16 rows enter anew" in said
    plan = read_plan(tmp_path / "out/plan.json")
    assert plan.input.hop == 2
    kept = next(t for t in plan.tensors if t.name == hop.NAME)
    assert f"{kept.bytes:,} B of the arena" in said
    result = CliRunner().invoke(main, [*words, "--hop", "31"])
    assert result.exit_code == 1 and "--hop takes 1..30" in result.output and "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize("board", ["disco_f746ng", "nucleo_f446re"])
def test_the_emulated_board_goes_on_with_the_same_bits(board: str, tmp_path: Path) -> None:
    front = parse(FRONT)
    written(listening(tmp_path), "listener", tmp_path / "library", tmp_path / "generated")
    elf = build(tmp_path, board, tmp_path / "generated")
    program = host_program(tmp_path / "generated", tmp_path)
    whole, new = front.samples(31), 4 * front.hop
    series = sound(whole + 3 * new)
    with Device(EmulatedPort(elf)) as device, Device(ProgramPort(program)) as host:
        assert device.train(series[:whole], 2) == host.train(series[:whole], 2)
        device.infer(series[:whole])
        for at in range(new, 3 * new + 1, new):
            found = device.follow(series[at + whole - new : at + whole]).logits
            np.testing.assert_array_equal(found, host.infer(series[at : at + whole]).logits)
