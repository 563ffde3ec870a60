"""PlatformIO pre-script: builds the application that an environment names, not firmware/src/application.c."""

import sys
from pathlib import Path

from SCons.Script import DefaultEnvironment

env = DefaultEnvironment()
chosen = env.GetProjectOption("custom_application", "")


def add(folder: Path) -> None:
    """Its sources, those of its folders too; they include each other's headers by name."""
    if not any(folder.glob("*.c")):
        sys.stderr.write(f"Error: custom_application is {chosen}, where there is no source of C.\n")
        env.Exit(1)
    env.Append(SRC_FILTER=["-<application.c>"], CPPPATH=[str(folder)])
    env.BuildSources(str(Path("$BUILD_DIR") / "application"), str(folder), "+<*>")


if chosen and not env.IsCleanTarget():
    add((Path(env.subst("$PROJECT_DIR")) / chosen).resolve())
