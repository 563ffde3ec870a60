"""No room imports one of its own floor or above, nor does one inside the compiler (lab/house/rooms.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.house import rooms


def test_every_room_has_its_floor() -> None:
    assert rooms.rooms_on_disk() == set(rooms.FLOOR), "lab/house/rooms.py lists every room"
    drawn = {other for _, other, _ in rooms.arrows()}
    assert drawn <= set(rooms.FLOOR), "a room is imported that has no floor"


def test_no_arrow_runs_up() -> None:
    assert rooms.upward() == []


def test_no_room_borrows_from_the_command_line_of_another(tmp_path: Path) -> None:
    assert rooms.borrowed_heads() == []
    (tmp_path / "tools/search").mkdir(parents=True)
    (tmp_path / "tools/search/late.py").write_text("def f():\n    from microtrain.convert.cli import main\n")
    assert rooms.borrowed_heads(tmp_path) == ["tools/search/late.py"]


def test_the_base_stands_on_nothing() -> None:
    assert not [arrow for arrow in rooms.arrows() if arrow[0] == "microtrain.base"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("tools/base/paths.py", "from microtrain.device.errors import DeviceError"),
        ("tools/convert/ir.py", "import microtrain.search.cli"),
        ("tools/device/plan.py", "from microtrain import simulate"),
        ("tools/samples/images.py", "from ..native.model import Model"),
        ("tools/demo/cli.py", "def late() -> None:\n    from lab.bench import table"),
        ("lab/soak/line.py", "from lab.results import store"),
        ("tools/convert/names.py", "from microtrain.convert.ops.table import Op"),
        ("tools/convert/frontends/clean/fold.py", "from microtrain.convert.quantize.int8 import quantize"),
        ("tools/convert/memory/plan.py", "def late() -> None:\n    from ..emit import code"),
        (
            "tools/convert/passes/prune.py",
            "if TYPE_CHECKING:\n    from ..memory.plan import Plan",
        ),
        ("tools/convert/ops/__init__.py", "from microtrain.convert.verify import verify"),
        ("tools/convert/pipeline.py", "from . import command"),
    ],
)
def test_a_planted_arrow_is_caught(file: str, line: str, tmp_path: Path) -> None:
    copy = tmp_path / file
    copy.parent.mkdir(parents=True)
    copy.write_text((rooms.ROOT / file).read_text())
    assert rooms.upward(tmp_path) == []
    with copy.open("a") as planted:
        planted.write(f"\n{line}\n")
    (found,) = rooms.upward(tmp_path)
    assert found.startswith(file)
