"""The library in the forms that build systems know: built where they are here, else held to their formats."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from conftest import ROOT
from library import written
from networks import residual_network

from microtrain import __version__
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme

MAIN = """#include <residual.h>
int main(void)
{
    struct microtrain_sizes sizes;
    return microtrain_sizes(&residual, &sizes) != MICROTRAIN_OK || sizes.arena_bytes != RESIDUAL_ARENA_BYTES;
}
"""
ARM = (
    "-DCMAKE_SYSTEM_NAME=Generic",
    "-DCMAKE_SYSTEM_PROCESSOR=arm",
    "-DCMAKE_C_COMPILER=arm-none-eabi-gcc",
    "-DCMAKE_C_FLAGS=-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packages")
    compiled = compile_graph(residual_network(), Scheme("s", 4, {-1: 0.5}), 5)
    return written(compiled, "residual", root / "library", root / "generated")


def text(library: Path, name: str) -> str:
    return (library / name).read_text(encoding="utf-8")


def sources(library: Path, *kinds: str) -> set[str]:
    return {p.relative_to(library).as_posix() for p in library.rglob("*") if p.suffix in kinds}


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


# ---------------------------------------------------------------- built


def cmake(source: Path, build: Path, *options: object) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    run("cmake", "-S", source, "-B", build, *options)
    run("cmake", "--build", build)


def project(folder: Path, found_by: str) -> Path:
    folder.mkdir()
    (folder / "main.c").write_text(MAIN)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(demo C)\n"
        f"{found_by}\nadd_executable(demo main.c)\ntarget_link_libraries(demo microtrain::microtrain)\n"
    )
    return folder


def test_cmake_builds_it_in_a_tree_and_installed(library: Path, tmp_path: Path) -> None:
    inside = project(tmp_path / "inside", f"add_subdirectory({library} library)")
    cmake(inside, tmp_path / "one")
    run(tmp_path / "one/demo")
    run("cmake", "--install", tmp_path / "one", "--prefix", tmp_path / "there")
    outside = project(tmp_path / "outside", "find_package(microtrain REQUIRED)")
    cmake(outside, tmp_path / "two", f"-DCMAKE_PREFIX_PATH={tmp_path / 'there'}")
    run(tmp_path / "two/demo")


def test_cmake_builds_it_for_a_cortex_m4_with_its_assembly(library: Path, tmp_path: Path) -> None:
    cmake(library, tmp_path / "build", *ARM)
    names = run("arm-none-eabi-nm", tmp_path / "build/libmicrotrain.a")
    assert "T microtrain_dot6_bias" in names and "T microtrain_train" in names


def test_platformio_builds_it_in_lib(library: Path, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.c").write_text(MAIN)
    shutil.copytree(library, tmp_path / "lib/garden")
    (tmp_path / "platformio.ini").write_text(f"[env:native]\nplatform = symlink://{ROOT}/platform\n")
    run(sys.executable, "-m", "platformio", "run", "-s", "-d", tmp_path)
    run(tmp_path / ".pio/build/native/program")


def test_the_arduino_example_compiles_against_a_stand_in(library: Path, tmp_path: Path) -> None:
    sketch = tmp_path / "learn.cpp"
    sketch.write_text('#include "Arduino.h"\n' + text(library, "examples/learn/learn.ino"))
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    run("g++", *flags, f"-I{library / 'src'}", f"-I{ROOT / 'test/fixtures/arduino'}", sketch)


# ---------------------------------------------------------------- held to their formats


def test_nothing_is_left_to_fill_in(library: Path) -> None:
    for path in library.rglob("*"):
        if path.is_file() and "src" not in path.relative_to(library).parts:
            assert "{{" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("name", ["CMakeLists.txt", "zephyr/CMakeLists.txt", "microtrain.pdsc"])
def test_every_list_of_sources_is_whole(name: str, library: Path) -> None:
    listed = set(re.findall(r"src/[\w/]+\.[cS]\b", text(library, name)))
    assert listed == sources(library, ".c", ".S") and len(listed) > 20


def test_the_versions_are_that_of_the_package(library: Path) -> None:
    properties = dict(line.split("=", 1) for line in text(library, "library.properties").splitlines())
    assert {"name", "version", "author", "maintainer", "sentence", "paragraph", "category"} <= set(properties)
    assert {"url", "architectures"} <= set(properties)
    component = yaml.safe_load(text(library, "idf_component.yml"))
    pack = ElementTree.fromstring(text(library, "microtrain.pdsc"))
    found = {
        properties["version"],
        component["version"],
        json.loads(text(library, "library.json"))["version"],
    }
    found |= {release.attrib["version"] for release in pack.iter("release")}
    assert found == {__version__}


def test_the_pack_names_a_known_class_and_files_that_are_there(library: Path) -> None:
    pack = ElementTree.fromstring(text(library, "microtrain.pdsc"))
    assert [child.tag for child in pack] == [
        *("vendor", "name", "description", "url", "license", "releases", "conditions", "components")
    ]
    conditions = {condition.attrib["id"] for condition in pack.iter("condition")}
    assert {component.attrib["condition"] for component in pack.iter("component")} <= conditions
    for file in pack.iter("file"):
        assert (library / file.attrib["name"]).exists(), file.attrib


def test_zephyrs_module_points_at_what_is_there(library: Path) -> None:
    build = yaml.safe_load(text(library, "zephyr/module.yml"))["build"]
    assert (library / build["cmake"] / "CMakeLists.txt").is_file() and (library / build["kconfig"]).is_file()
    assert "config MICROTRAIN\n" in text(library, "zephyr/Kconfig")


def test_keywords_are_of_the_header(library: Path) -> None:
    header = text(library, "src/microtrain.h")
    for line in text(library, "keywords.txt").splitlines():
        word, kind = line.split("\t")
        assert re.search(rf"\b{word}\b", header) and kind in ("KEYWORD1", "KEYWORD2", "LITERAL1")
