"""Builds firmware.elf and firmware.hex for an STM32 and uploads them.

An upload writes the code and the weights and nothing else: the flash sectors between or after them hold
checkpoints. So no image without gaps (one .bin of the whole flash) is ever made.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from SCons.Script import COMMAND_LINE_TARGETS, AlwaysBuild, Builder, Default, DefaultEnvironment

env = DefaultEnvironment()
board = env.BoardConfig()
platform = env.PioPlatform()

EXTERNAL = ".external"  # the section of what lies in flash beside the chip

NO_BOARD = (
    f"Is the board's ST-LINK port ({board.get('upload.usb_port')}) connected, "
    "and may this user open it (udev rules)?"
)


def script_folder() -> Path:
    """Where the linker script is, and what it includes."""
    return (Path(env.subst("$PROJECT_DIR")) / board.get("build.ldscript")).resolve().parent


def configure_toolchain() -> None:
    """Compiler, linker and size tool; the registry's toolchain, where it is installed, leads PATH."""
    path = env["ENV"]["PATH"]
    env.Replace(
        AR="arm-none-eabi-gcc-ar",
        AS="arm-none-eabi-as",
        CC="arm-none-eabi-gcc",
        CXX="arm-none-eabi-g++",
        GDB="arm-none-eabi-gdb" if shutil.which("arm-none-eabi-gdb", path=path) else "gdb-multiarch",
        OBJCOPY="arm-none-eabi-objcopy",
        RANLIB="arm-none-eabi-gcc-ranlib",
        SIZETOOL="arm-none-eabi-size",
        ARFLAGS=["rc"],
        PROGSUFFIX=".elf",
        # Flash holds what is loaded, the image of .data included; RAM what has an address there.
        SIZECHECKCMD="$SIZETOOL -A -d $SOURCES",
        SIZEPROGREGEXP=r"^(?:\.isr_vector|\.text|\.rodata|\.weights|\.data)\s+(\d+).*",
        SIZEDATAREGEXP=r"^(?:\.stack|\.data|\.bss)\s+(\d+).*",
    )
    if env.get("PROGNAME", "program") == "program":
        env.Replace(PROGNAME="firmware")
    fpu = str(board.get("build.fpu"))
    machine = [
        f"-mcpu={board.get('build.cpu')}",
        "-mthumb",
        f"-mfpu={fpu}",
        "-mfloat-abi=hard",
    ]
    env.Append(
        ASFLAGS=machine,
        ASPPFLAGS=["-x", "assembler-with-cpp"],
        CCFLAGS=[*machine, "-ffunction-sections", "-fdata-sections"],
        CPPDEFINES=[("F_CPU", "$BOARD_F_CPU"), ("FPU_V5", int(fpu.startswith("fpv5")))],
        LINKFLAGS=[
            *machine,
            "-nostartfiles",
            "--specs=nano.specs",
            "-Wl,--gc-sections",
            "-Wl,--fatal-warnings",
            "-Wl,-Map,${TARGET.base}.map",
            f"-Wl,-L{script_folder()}",
        ],
        LIBS=["m"],
    )


def objcopy(flags: str, suffix: str) -> Any:
    return Builder(
        action=env.VerboseAction(f"$OBJCOPY {flags} $SOURCE $TARGET", "Building $TARGET"), suffix=suffix
    )


def need_program(program: str, package: str) -> Any:
    """An action that ends the build with a hint where `program` is not on PATH."""

    def check(target: Any, source: Any, env: Any) -> None:
        if not shutil.which(program, path=env["ENV"]["PATH"]):
            sys.stderr.write(
                f"Error: `{program}` is not on PATH. Install it (Debian: {package}) "
                "or choose another upload_protocol.\n"
            )
            env.Exit(1)

    return env.VerboseAction(check, f"Looking for {program}...")


def run_with_hint(*commands: str) -> Any:
    """An action that runs the commands one after another; where one fails, it says what to check."""

    def run(target: Any, source: Any, env: Any) -> int:
        for command in commands:
            line = env.subst(command, source=source, target=target)
            code = subprocess.call(line, shell=True, env=env["ENV"])
            if code:
                sys.stderr.write(f"Error: upload failed. {NO_BOARD}\n")
                return code
        return 0

    return env.VerboseAction(run, "Uploading $SOURCE")


def external_flash() -> dict[str, str]:
    """The board's flash beside the chip, where the model has weights there; else nothing."""
    chosen = any(define[0] == "MICROTRAIN_EXTERNAL" for define in env.get("CPPDEFINES", []))
    return next(iter(board.get("external", {}).values()), {}) if chosen else {}


def without_checkpoints() -> None:
    """Tell the linker script of a model that is never saved: weights may lie in the checkpoints' flash."""
    if ("MICROTRAIN_CHECKPOINTS", "0") in env.get("CPPDEFINES", []):
        env.Append(LINKFLAGS=["-Wl,--defsym=NO_CHECKPOINTS=1"])


def upload_actions(elf: Any, code: Any, weights: Any) -> tuple[Any, list[Any]]:
    """What to upload, and how, for the chosen upload_protocol."""
    protocol = env.subst("$UPLOAD_PROTOCOL")
    if protocol == "stlink":  # OpenOCD erases only the sectors that the ELF's segments lie in
        package = platform.get_package_dir("tool-openocd")
        scripts = f'-s "{Path(package) / "openocd" / "scripts"}" ' if package else ""
        script = external_flash().get("openocd_board") or board.get("debug.openocd_board")
        config = f"board/{script}.cfg"
        program = f'openocd {scripts}-f "{config}" -c "program {{$SOURCE}} verify reset exit"'
        return elf, [need_program("openocd", "openocd"), run_with_hint(program)]
    if protocol == "stflash" and external_flash():
        sys.stderr.write(
            "Error: st-flash cannot write the flash beside the chip, where weights of this model lie: "
            "use upload_protocol = stlink.\n"
        )
        env.Exit(1)
    if protocol == "stflash":
        at = {part: board.get(f"upload.{part}_address") for part in ("code", "weights")}
        write = 'st-flash --connect-under-reset {flags} write "{file}" {address}'
        return [code, weights], [
            need_program("st-flash", "stlink-tools"),
            run_with_hint(
                write.format(flags="", file="${SOURCES[0]}", address=at["code"]),
                write.format(flags="--reset", file="${SOURCES[1]}", address=at["weights"]),
            ),
        ]
    if protocol == "custom":  # upload_command in platformio.ini
        return elf, [env.VerboseAction("$UPLOADCMD", "Uploading $SOURCE")]
    sys.stderr.write(f"Error: unknown upload_protocol `{protocol}`; there are stlink, stflash and custom.\n")
    env.Exit(1)
    return elf, []


def build() -> None:
    base = "${BUILD_DIR}/${PROGNAME}"
    elf: Any = f"{base}.elf"
    image: Any = f"{base}.hex"
    if "nobuild" not in COMMAND_LINE_TARGETS:
        elf = env.BuildProgram()
        env.Depends(elf, sorted(map(str, script_folder().glob("*.ld"))))
        image = env.ElfToHex(image, elf)
        env.Depends(image, "checkprogsize")
    AlwaysBuild(env.Alias("nobuild", image))
    program = env.Alias("buildprog", image, image)
    size = env.VerboseAction("$SIZETOOL -A -d $SOURCE", "Size of $SOURCE")
    AlwaysBuild(env.Alias("size", elf, size))
    code, weights = env.CodeToBin(f"{base}_code.bin", elf), env.WeightsToBin(f"{base}_weights.bin", elf)
    sources, actions = upload_actions(elf, code, weights)
    AlwaysBuild(env.Alias("upload", sources, actions))
    Default([program])


configure_toolchain()
without_checkpoints()
env.Append(
    BUILDERS={
        "ElfToHex": objcopy("-O ihex", ".hex"),
        "CodeToBin": objcopy(f"-O binary -R .weights -R {EXTERNAL}", ".bin"),
        "WeightsToBin": objcopy("-O binary -j .weights", ".bin"),
    }
)
build()
