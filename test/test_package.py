"""The wheel, as it is installed: commands, what travels in it, and a project that it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from pio_build import ROOT

from microtrain import __version__
from microtrain.base.pio import with_ccache
from microtrain.cli import TOOLS, command

MODEL = ROOT / "examples/digits/model.pt"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the files that git would commit, away from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file() and not source.is_symlink():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_bytes(source.read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run([*pip, str(folder / "source")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The unpacked wheel: what site-packages would hold."""
    folder = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def microtrain(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, from the wheel and nowhere else."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-m", "microtrain", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def project(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "project"
    done = microtrain(installed, "new", str(folder), "--board", "nucleo_f446re", cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_package_is_named_in_pyproject() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = set(document["tool"]["setuptools"]["packages"])
    tools = ROOT / "tools"
    found = {".".join(("microtrain", *p.parent.relative_to(tools).parts)) for p in tools.rglob("__init__.py")}
    assert named == found | {"microtrain.project"}


def tracked(*folders: str) -> list[str]:
    """Files that git holds below folders of the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split() if (ROOT / name).is_file()]


def test_the_wheel_holds_the_firmware_and_the_boards_but_no_lab(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    project = {f"microtrain/project/{name}" for name in tracked("firmware", "platform", "examples/digits")}
    assert project <= names
    assert {name.replace("tools", "microtrain", 1) for name in tracked("tools")} <= names
    assert "microtrain/project/platformio.ini" in names
    assert f"microtrain-{__version__}.dist-info/licenses/LICENSE" in names
    assert not {name.split("/")[0] for name in names} - {"microtrain", f"microtrain-{__version__}.dist-info"}
    assert not [name for name in names if "generated" in name or "__pycache__" in name or "setup.py" in name]


@pytest.mark.parametrize("name", TOOLS)
def test_every_command_of_the_list_is_there_and_has_a_help(name: str) -> None:
    assert command(name).help


def test_the_version_is_that_of_the_package(installed: Path, tmp_path: Path) -> None:
    done = microtrain(installed, "--version", cwd=tmp_path)
    assert done.stdout == f"microtrain, version {__version__}\n"


def test_a_project_is_written_converted_and_built(installed: Path, project: Path) -> None:
    words = (str(MODEL), "--classes", "10", "--board", "nucleo_f446re", "--imprint", "off")
    done = microtrain(installed, "convert", *words, cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "firmware/generated/model.c").is_file()
    pio = Path(sys.executable).with_name("pio")
    environment = {**os.environ, "PYTHONPATH": str(installed), **with_ccache()}
    built = subprocess.run(
        [pio, "run"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "SRAM" in built.stdout  # the memory report
    assert (project / ".pio/build/nucleo_f446re/firmware.elf").is_file()
    elf = ".pio/build/nucleo_f446re/firmware.elf"
    report = microtrain(installed, "report", "--elf", elf, cwd=project)
    assert report.returncode == 0, report.stderr
    info = microtrain(installed, "device", "--emulate", elf, "info", cwd=project)
    assert info.returncode == 0, info.stderr
    assert "digits" in info.stdout


def test_outside_of_a_project_convert_asks_where_to_write(installed: Path, tmp_path: Path) -> None:
    done = microtrain(installed, "convert", str(MODEL), "--classes", "10", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no PlatformIO project here: `microtrain new FOLDER` makes one" in done.stderr
    assert not list(tmp_path.iterdir())


def test_new_keeps_a_folder_that_is_not_empty(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = microtrain(installed, "new", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert "is there and not empty" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_an_update_replaces_what_the_user_did_not_change(installed: Path, project: Path) -> None:
    assert "is up to date" in microtrain(installed, "new", "--update", str(project), cwd=project).stdout
    main, record = project / "firmware/src/main.c", project / ".microtrain.json"
    text = main.read_text()
    main.write_text("// another version's\n")
    document = json.loads(record.read_text())
    microtrain(installed, "new", "--update", str(project), cwd=project)  # does not change this file: it stays
    assert main.read_text() == "// another version's\n"
    document["files"]["firmware/src/main.c"] = "0" * 64
    record.write_text(json.dumps(document))
    refused = microtrain(installed, "new", "--update", str(project), cwd=project)
    assert refused.returncode == 1
    assert "firmware/src/main.c" in refused.stderr
    assert main.read_text() == "// another version's\n"
    main.unlink()
    done = microtrain(installed, "new", "--update", str(project), cwd=project)
    assert "files that changed: 1" in done.stdout
    assert main.read_text() == text


def test_an_update_wants_a_project(installed: Path, tmp_path: Path) -> None:
    done = microtrain(installed, "new", "--update", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert "it is no project that `microtrain new` wrote" in done.stderr
    (tmp_path / ".microtrain.json").write_text("{}")
    done = microtrain(installed, "new", "--update", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
