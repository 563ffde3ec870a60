"""PlatformIO pre-script: what does not compute is compiled for size."""

from typing import Any

from SCons.Script import DefaultEnvironment

env = DefaultEnvironment()
COLD = ("main.c", "application.c", "base/text.c", "board/*", "fleet/*", "runtime/*", "serial/*")


def for_size(env: Any, node: Any) -> Any:
    return env.Object(node, CCFLAGS=[*env["CCFLAGS"], "-Os"])


for files in COLD:
    env.AddBuildMiddleware(for_size, f"*/firmware/src/{files}")
