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

from lab.sizes.networks import example
from microtrain import __version__
from microtrain.base.paths import FIRMWARE
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme, find

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
    return {p.relative_to(library).as_posix() for p in (library / "src").rglob("*") if p.suffix in kinds}


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


STAND_INS = {  # what the file asks of a build system; without it, in functions of ours
    "CMakeLists.txt": """set(ESP_PLATFORM 1)
function(idf_component_register)
  cmake_parse_arguments(PARSE_ARGV 0 given "" "" "SRCS;INCLUDE_DIRS")
  add_library(garden STATIC ${given_SRCS})
  target_include_directories(garden PUBLIC ${given_INCLUDE_DIRS})
  set(COMPONENT_LIB garden PARENT_SCOPE)
endfunction()
""",
    "zephyr/CMakeLists.txt": """set(CONFIG_MICROTRAIN y)
function(zephyr_library_named name)
  add_library(garden STATIC)
endfunction()
function(zephyr_include_directories folder)
  target_include_directories(garden PUBLIC ${folder})
endfunction()
function(zephyr_library_compile_options option)
  target_compile_options(garden PRIVATE ${option})
endfunction()
function(zephyr_library_sources source)
  target_sources(garden PRIVATE ${source})
endfunction()
""",
}


def stood_in(library: Path, name: str, folder: Path) -> Path:
    folder.mkdir()
    (folder / "main.c").write_text(MAIN)
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(demo C)\n{STAND_INS[name]}"
        f"add_subdirectory({(library / name).parent} library)\n"
        "add_executable(demo main.c)\ntarget_link_libraries(demo garden)\n"
    )
    return folder


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_of_esp_idf_and_of_zephyr_builds_it(name: str, library: Path, tmp_path: Path) -> None:
    cmake(stood_in(library, name, tmp_path / "own"), tmp_path / "build")
    run(tmp_path / "build/demo")


def test_a_source_that_a_list_names_and_nobody_has_stops_the_build(library: Path, tmp_path: Path) -> None:
    shutil.copytree(library, tmp_path / "library")
    (tmp_path / "library/src/microtrain/pool.c").unlink()
    with pytest.raises(AssertionError, match=r"pool\.c"):
        cmake(stood_in(tmp_path / "library", "CMakeLists.txt", tmp_path / "own"), tmp_path / "build")


# ---------------------------------------------------------------- MicroPython


def module_compiles(library: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The module and its models, by a compiler that is shown stand-ins of MicroPython's headers."""
    own = [library / "micropython/modmicrotrain.c", library / "micropython/models.c"]
    names = sorted(set(re.findall(r"MP_QSTR_(\w+)", own[0].read_text())) - {"", "name"})
    words = [name for name in names if name != "_"] + re.findall(r"METHOD\((\w+)\)", own[0].read_text())
    each = "\n".join(f"    MP_QSTR_{word}," for word in dict.fromkeys(words))
    (tmp_path / "qstrs.h").write_text(f"enum {{\n{each}\n}};\n")
    flags = ["-std=gnu99", "-Wall", "-Wextra", "-Wpointer-arith", "-Wdouble-promotion", "-Wfloat-conversion"]
    include = [
        f"-I{library / 'src'}",
        f"-I{library / 'micropython'}",
        f"-I{ROOT / 'test/fixtures/micropython'}",
    ]
    command = ["gcc", *flags, "-Werror", "-fsyntax-only", *include, "-include", tmp_path / "qstrs.h", *own]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def test_the_module_of_micropython_compiles_against_a_stand_in(library: Path, tmp_path: Path) -> None:
    done = module_compiles(library, tmp_path)
    assert done.returncode == 0, done.stderr[:2000]
    other = tmp_path / "library"
    shutil.copytree(library, other)
    header = other / "src/microtrain.h"
    header.write_text(header.read_text().replace("int microtrain_slide(struct microtrain *m);", ""))
    assert "microtrain_slide" in module_compiles(other, tmp_path).stderr


def test_the_module_knows_each_function_and_each_number(library: Path) -> None:
    module = text(library, "micropython/modmicrotrain.c")
    functions = set(re.findall(r"\b(microtrain_\w+)\(", text(library, "src/microtrain.h")))
    assert len(functions) > 20
    assert {name for name in functions if not re.search(rf"\b{name}\b", module)} == set()
    sizes = text(library, "src/microtrain.h").split("struct microtrain_sizes {")[1].split("};")[0]
    fields = re.findall(r"\b(\w+)(?=[,;])", re.sub(r"/\*.*?\*/", "", sizes))
    assert fields == re.findall(r"offsetof\(struct microtrain_sizes, (\w+)\)", module)


def test_the_example_of_micropython_is_short_python(library: Path) -> None:
    lines = text(library, "examples/micropython/main.py").splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= 20
    assert 'Model("residual")' in "\n".join(lines)
    for name in ("main.py", "slots.py"):
        compile(text(library, f"examples/micropython/{name}"), name, "exec")


def test_the_page_calls_what_the_module_has(library: Path) -> None:
    page = (ROOT / "docs/embed.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    compile(block, "embed.md", "exec")
    module = text(library, "micropython/modmicrotrain.c")
    known = set(re.findall(r"METHOD\((\w+)\)", module)) | set(re.findall(r"\{MP_QSTR_(\w+), ", module))
    example = text(library, "examples/micropython/main.py")
    called = set(re.findall(r"\bdevice\.(\w+)", block + example))
    assert len(called) > 5 and called <= known | {"steps"} and "MP_QSTR_steps:" in module


def test_slots_in_files_keep_what_was_written(library: Path, tmp_path: Path) -> None:
    space: dict[str, type] = {}
    exec(text(library, "examples/micropython/slots.py"), space)
    slots, found = space["FileSlots"](str(tmp_path / "kept"), 128), bytearray(4)
    slots.readblocks(1, found, 8)
    assert found == b"\xff" * 4 and (slots.ioctl(4, 0), slots.ioctl(5, 0)) == (2, 128)
    slots.ioctl(6, 1)
    slots.writeblocks(1, b"abcd", 8)
    slots.readblocks(1, found, 9)
    assert found == b"bcd\xff" and (tmp_path / "kept1.bin").stat().st_size == 128
    slots.ioctl(6, 1)
    slots.readblocks(1, found, 8)
    assert found == b"\xff" * 4


# ---------------------------------------------------------------- held to their formats


def test_nothing_is_left_to_fill_in(library: Path) -> None:
    for path in library.rglob("*"):
        if path.is_file() and "src" not in path.relative_to(library).parts:
            assert "{{" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize(
    "name",
    ["CMakeLists.txt", *("zephyr/CMakeLists.txt", "microtrain.pdsc", "micropython.mk", "micropython.cmake")],
)
def test_every_list_of_sources_is_whole(name: str, library: Path) -> None:
    listed = set(re.findall(r"src/[\w/]+\.[cS]\b", text(library, name)))
    assert listed == sources(library, ".c", ".S") and len(listed) > 20


def test_every_kernel_is_in_the_folder(library: Path) -> None:
    """So that no list can lack what the folder has not got either."""
    kernels = {p.name for p in (FIRMWARE / "src/kernels").iterdir() if p.suffix in (".c", ".S")}
    found = {Path(name).name for name in sources(library, ".c", ".S")}
    assert {"phases_armv7em.S", "spectrum_armv7em.S", "spectrum.c"} <= kernels and kernels <= found


def test_make_names_every_source_of_the_module(library: Path, tmp_path: Path) -> None:
    """As a port of MicroPython includes it."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    rules = "all:\n\t@echo $(SRC_USERMOD_C) $(SRC_USERMOD_LIB_C) $(SRC_USERMOD_LIB_ASM)\n"
    (tmp_path / "Makefile").write_text(f"USERMOD_DIR := {library}\ninclude {library}/micropython.mk\n{rules}")
    named = {Path(word) for word in run("make", "-s", "-C", tmp_path).split()}
    assert {path for path in named if not path.is_file()} == set()
    own = {library / f"micropython/{name}.c" for name in ("modmicrotrain", "models")}
    assert named == own | {library / name for name in sources(library, ".c", ".S")}


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


def test_zephyrs_sample_is_whole(library: Path) -> None:
    cmake, manifest = (
        text(library, "examples/zephyr/CMakeLists.txt"),
        text(library, "examples/zephyr/west.yml"),
    )
    assert "ZEPHYR_EXTRA_MODULES ${CMAKE_CURRENT_SOURCE_DIR}/../..)" in cmake and "src/main.c" in cmake
    projects = yaml.safe_load(manifest)["manifest"]
    assert {p["remote"] for p in projects["projects"]} <= {r["name"] for r in projects["remotes"]}
    assert "CONFIG_MICROTRAIN=y\n" in text(library, "examples/zephyr/prj.conf")


def test_zephyrs_sample_learns_what_it_sees(tmp_path: Path) -> None:
    """Its main.c with a stand-in for Zephyr's header, which is ours."""
    compiled = compile_graph(example(ROOT), find(ROOT / "examples/digits/scheme.yaml"), 10)
    library = written(compiled, "digits", tmp_path / "library", tmp_path / "generated")
    (tmp_path / "zephyr").mkdir()
    (tmp_path / "zephyr/kernel.h").write_text("#include <stdio.h>\n#define printk printf\n")
    engine = sorted((library / "src").rglob("*.c"))
    flags = (
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        f"-I{tmp_path}",
        f"-I{library / 'src'}",
    )
    run("gcc", *flags, library / "examples/zephyr/src/main.c", *engine, "-o", tmp_path / "learn")
    said = run(tmp_path / "learn")
    before, after = (int(number) for number in re.findall(r"^right \w+: (\d+) of 40$", said, re.MULTILINE))
    assert after > before + 10 and re.search(r"^ok, weights [0-9a-f]{8}$", said, re.MULTILINE)


def test_the_smallest_c_library_of_zephyr_is_enough(library: Path, tmp_path: Path) -> None:
    """It has no NAN and no INFINITY, and headers of Zephyr have an ALWAYS_INLINE of their own."""
    (tmp_path / "math.h").write_text("float sqrtf(float square);\n")
    (tmp_path / "zephyr.h").write_text("#define ALWAYS_INLINE inline __attribute__((always_inline))\n")
    flags = ("-std=c99", "-Wall", "-Werror", "-fsyntax-only", f"-I{tmp_path}", f"-I{library / 'src'}")
    for source in sorted((library / "src").rglob("*.c")):
        run("gcc", *flags, "-include", tmp_path / "zephyr.h", source)


def test_keywords_are_of_the_header(library: Path) -> None:
    header = text(library, "src/microtrain.h") + text(library, "src/microtrain_fleet.h")
    for line in text(library, "keywords.txt").splitlines():
        word, kind = line.split("\t")
        assert re.search(rf"\b{word}\b", header) and kind in ("KEYWORD1", "KEYWORD2", "LITERAL1")
