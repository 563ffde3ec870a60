"""PlatformIO pre-script: adds the generated model to the sources; converts the example where there is none.

PlatformIO lists the source files right after this script, so the conversion has to be finished here and
cannot be one more build step.
"""

import os
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
    return f"run `python tools/convert MODEL.pt -o {folder}`."


def convert_example() -> None:
    """Run the converter on the example; ends the build with a sentence where it fails."""
    print(f"{GENERATED} holds no model: converting {EXAMPLE}")
    command = [env.subst("$PYTHONEXE"), "tools/convert", EXAMPLE, *OPTIONS, "-o", GENERATED]
    for needed in command[1:3]:
        if not (root / needed).exists():
            stop(f"{GENERATED} holds no model and {needed} is not there; {advice(GENERATED)}")
    if subprocess.run(command, cwd=root, check=False).returncode:
        stop(f"`python {' '.join(command[1:])}` failed; its message stands above.")


def model_folder() -> Path:
    """The folder with model.h, model.c, model_weights.c and plan.json."""
    chosen = os.environ.get("MICROTRAIN_MODEL") or (UNIT_TEST_MODEL if testing else "")
    folder = (root / (chosen or GENERATED)).resolve()
    if (folder / "model.c").is_file():
        return folder
    if chosen:
        stop(f"MICROTRAIN_MODEL is {chosen}, where there is no model.c; {advice(chosen)}")
    convert_example()
    return folder


if not env.IsCleanTarget():
    model = model_folder()
    env["MICROTRAIN_PLAN"] = str(model / "plan.json")
    env.Append(CPPPATH=["$PROJECT_INCLUDE_DIR", str(model)])
    env.BuildSources(str(Path("$BUILD_DIR") / "model"), str(model), "+<*.c>")
    if testing:
        env.Append(SRC_FILTER=["-<main.c>"])  # a unit test brings its own main
        env.Replace(PROGNAME="unit_tests")  # and leaves the host simulator's `program` alone
