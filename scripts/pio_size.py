"""PlatformIO pre-script: what does not compute is compiled for size."""

from typing import Any

from SCons.Script import DefaultEnvironment

env = DefaultEnvironment()
COLD = (
    *("main.c", "application.c", "base/text.c", "serial/*"),
    *(f"runtime/{name}.c" for name in ("checkpoint", "microtrain_board", "selftest")),
    *(f"board/stm32/{name}.c" for name in ("clock", "fault", "usart", "watchdog")),
    "board/stm32f746/quadspi.c",
)
MODEL = "*/model.c"  # calls, one after the other


def for_size(env: Any, node: Any) -> Any:
    """The last -O counts. CCFLAGS are not known yet where pio_model.py adds the model."""
    return env.Object(node, CCCOM=f"{env['CCCOM']} -Os")


for pattern in (*(f"*/firmware/src/{files}" for files in COLD), MODEL):
    env.AddBuildMiddleware(for_size, pattern)
