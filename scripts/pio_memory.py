"""PlatformIO post-script: `pio run -t memory_report`, and the same report after every link of the ELF.

After a link it only informs; asked for by name it fails where the firmware is over its budget. Where
MICROTRAIN_SILENT is set nobody would see it (`pio run -s` drops it, and does not tell this script), so that a
link ends without it.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

from SCons.Script import DefaultEnvironment

env = DefaultEnvironment()
root = Path(env.subst("$PROJECT_DIR"))


def report(env: Any) -> int:
    """Run the tool; returns its exit status."""
    elf = env.subst("$BUILD_DIR/${PROGNAME}.elf")
    command = [*env["MICROTRAIN"], "report", "--elf", elf, "--plan", env.get("MICROTRAIN_PLAN", "")]
    return subprocess.run(command, cwd=root, check=False).returncode


def after_link(target: Any, source: Any, env: Any) -> int:
    if env["MICROTRAIN"][0] and not os.environ.get("MICROTRAIN_SILENT"):
        report(env)
    return 0


def on_demand(target: Any, source: Any, env: Any) -> int:
    if env["MICROTRAIN"][0]:
        return report(env)
    print("Error: there is no command microtrain: `pip install microtrain`.")
    return 1


ELF = "$BUILD_DIR/${PROGNAME}.elf"
env.AddPostAction(ELF, env.VerboseAction(after_link, "Reporting the memory of $TARGET"))
env.AddCustomTarget(
    name="memory_report",
    dependencies=ELF,
    actions=env.VerboseAction(on_demand, "Reporting memory"),
    title="Memory report",
    description="Flash, SRAM and stack of the firmware against the chip and the budget",
)
