"""PlatformIO pre-script: adds the generated model to the sources; converts the example where there is none.

PlatformIO lists the source files right after this script, so the conversion has to be finished here and
cannot be one more build step.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from SCons.Script import COMMAND_LINE_TARGETS, DefaultEnvironment

env = DefaultEnvironment()
root = Path(env.subst("$PROJECT_DIR"))
testing = "__test" in COMMAND_LINE_TARGETS

EXAMPLE = "examples/digits/model.pt"
OPTIONS = ["--scheme", "examples/digits/scheme.yaml", "--classes", "10"]
GENERATED = "firmware/generated"
UNIT_TEST_MODEL = "test/fixtures/null_model"


def stop(sentence: str) -> None:
    sys.stderr.write(f"Error: {sentence}\n")
    env.Exit(1)


def advice(folder: str) -> str:
    return f"run `microtrain convert MODEL.pt -o {folder}`."


def microtrain() -> list[str]:
    """The command: this checkout's, the one of the Python that runs PlatformIO, or the one on PATH."""
    if (root / "microtrain").is_dir() or importlib.util.find_spec("microtrain"):
        return [env.subst("$PYTHONEXE"), "-m", "microtrain"]
    return [shutil.which("microtrain") or ""]


def convert_example() -> None:
    """Run the converter on the example; ends the build with a sentence where it fails."""
    print(f"{GENERATED} holds no model: converting {EXAMPLE}")
    command = [*env["MICROTRAIN"], "convert", EXAMPLE, *OPTIONS, "-o", GENERATED]
    if not (root / EXAMPLE).exists():
        stop(f"{GENERATED} holds no model and {EXAMPLE} is not there; {advice(GENERATED)}")
    if not command[0]:
        stop(f"{GENERATED} holds no model and there is no command microtrain: `pip install microtrain`.")
    if subprocess.run(command, cwd=root, check=False).returncode:
        stop(f"`{' '.join(command)}` failed; its message stands above.")


def model_folder() -> Path:
    """The folder with model.h, model.c, model_weights.c and plan.json."""
    chosen = os.environ.get("MICROTRAIN_MODEL") or (UNIT_TEST_MODEL if testing else "")
    folder = root / (chosen or GENERATED)  # a link stays one: ccache knows sources by the names of headers
    if (folder / "model.c").is_file():
        return folder
    if chosen:
        stop(f"MICROTRAIN_MODEL is {chosen}, where there is no model.c; {advice(chosen)}")
    convert_example()
    return folder


def choices(header: Path) -> list[tuple[str, str]]:
    """What conversion chose for the kernels: MODEL_.. as MICROTRAIN_.. (kernels/choices.h)."""
    found = re.findall(
        r"^#define MODEL_(CHECKPOINTS|EXTERNAL|FIXED|TFLITE|WINDOWS) (\w+)$",
        header.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [(f"MICROTRAIN_{name}", value) for name, value in found]


env["MICROTRAIN"] = microtrain()
if not env.IsCleanTarget():
    model = model_folder()
    env["MICROTRAIN_PLAN"] = str(model / "plan.json")
    env.Append(CPPPATH=["$PROJECT_INCLUDE_DIR", str(model)])
    env.Append(CPPDEFINES=choices(model / "model.h"))
    env.BuildSources(str(Path("$BUILD_DIR") / "model"), str(model), "+<*.c>")
    if testing:
        env.Append(SRC_FILTER=["-<main.c>"])  # a unit test brings its own main
        env.Replace(PROGNAME="unit_tests")  # and leaves the host simulator's `program` alone
