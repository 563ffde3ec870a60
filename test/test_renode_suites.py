"""The .robot suites on the board model; `make renode` also runs them on Renode where that is installed."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, Built
from robot import api
from robot.running.resourcemodel import ResourceFile

from microtrain.base.plan import read_plan
from microtrain.convert import boards as convert_boards
from microtrain.emulator import EmulatorError, robotrun
from microtrain.emulator.chips import STM32F446, STM32F746
from microtrain.emulator.robotlib import BoardKeywords
from renode import boards, examples, golden_session

RENODE = ROOT / "renode"
SUITES = sorted(RENODE.glob("*.robot"))
SHARED = RENODE / "keywords.resource"
OUTSIDE = RENODE / "external.robot"
COMMON = set(SUITES) - {RENODE / "camera.robot", OUTSIDE}
KINDS = ("Keywords of Renode", "Keywords of Robot Framework", "Commands of the monitor")


# ---------------------------------------------------------------- what the suites may use
def listed(kind: str) -> dict[str, list[str]]:
    """A part of the list: entries, each with what stands two spaces or more behind it."""
    text = (RENODE / "KEYWORDS").read_text()
    after = text.split(kind, 1)[1].split("\n\n", 2)[1]
    entries = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in after.splitlines()]
    return {entry[0]: entry[1].split() if len(entry) > 1 else [] for entry in entries}


def calls(body: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Keywords and their arguments, those in loops and branches included."""
    for item in body:
        if getattr(item, "name", None) and hasattr(item, "args"):
            yield item.name, tuple(map(str, item.args))
        yield from calls(getattr(item, "body", ()))


def board_variables() -> dict[str, str]:
    """The variables that keywords.resource gives the suites, by their names with ${}."""
    found = ResourceFile.from_file_system(SHARED).variables
    return {variable.name: "".join(map(str, variable.value)) for variable in found}


def strangers(suite: Path) -> list[str]:
    """What a suite uses although the list does not have it."""
    parsed = api.TestSuite.from_file_system(suite)
    own = [*parsed.resource.keywords, *ResourceFile.from_file_system(SHARED).keywords]
    known, renode = {keyword.name for keyword in own} | set(listed(KINDS[1])), listed(KINDS[0])
    found = []
    for name, arguments in calls([*parsed.tests, *own]):
        if name == "Execute Command" and not any(fits(arguments[0], command) for command in listed(KINDS[2])):
            found.append(arguments[0])
        named = [argument.split("=")[0] for argument in arguments if re.match(r"\w+=", argument)]
        if name in renode:
            found += [f"{name} {argument}" for argument in named if argument not in renode[name]]
        elif name not in known:
            found.append(name)
    return found


def fits(command: str, pattern: str) -> bool:
    """Whether a monitor command is one of the list, with what the F746's board calls its parts."""
    for name in ("${UART}", "${USER_LED}", "${USER_BUTTON}"):
        command = command.replace(name, board_variables()[name])
    words, wanted = command.split(), pattern.split()
    return len(words) == len(wanted) and all(
        word == want or want.isupper() for word, want in zip(words, wanted, strict=True)
    )


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_suites_use_only_what_both_know(suite: Path) -> None:
    assert strangers(suite) == []


@pytest.mark.parametrize(
    ("line", "stranger"),
    [
        ("Wait For Log Entry    x", "Wait For Log Entry"),
        ("Execute Command    sysbus.cpu IsHalted true", "sysbus.cpu IsHalted true"),
        ("Execute Command    sysbus ReadDoubleWord", "sysbus ReadDoubleWord"),
        ("Write Line To Uart    ping    pauseEmulation=true", "Write Line To Uart pauseEmulation"),
        ("FOR    ${i}    IN    1\n        Log    ${i}\n    END", "Log"),
    ],
)
def test_a_keyword_that_only_one_knows_is_noticed(line: str, stranger: str, tmp_path: Path) -> None:
    suite = tmp_path / "stranger.robot"
    suite.write_text(f"*** Test Cases ***\nStrange\n    {line}\n")
    assert strangers(suite) == [stranger]


@pytest.mark.parametrize("keyword", listed(KINDS[0]))
def test_the_board_model_has_each_keyword_with_its_arguments(keyword: str) -> None:
    method = getattr(BoardKeywords, keyword.lower().replace(" ", "_"))
    assert set(listed(KINDS[0])[keyword]) <= set(inspect.signature(method).parameters)


def test_the_board_model_has_each_monitor_command(example: Built) -> None:
    values = {"FILE": f"@{example.elf}", "TIME": '"0.001"', "NAME": '"main"', "COUNT": "1000000"}
    values |= {"ADDRESS": "0x20000000", "VALUE": "1"}
    keywords = BoardKeywords()
    for command in sorted(listed(KINDS[2]), key=lambda command: "LoadELF" not in command):
        keywords.execute_command(" ".join(values.get(word, word) for word in command.split()))
    with pytest.raises(EmulatorError, match="keep suites to what both"):
        keywords.execute_command("sysbus.cpu IsHalted true")


# ---------------------------------------------------------------- the suites
def run_suites(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "renode/run.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_suites_pass_on_the_example(example: Built, tmp_path: Path) -> None:
    done = run_suites("--elf", example.elf, "--program", example.program, "--results", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "board model: passed" in done.stdout
    assert "Renode: " in done.stdout
    assert "external.robot: left out, this firmware has no weights beside the chip" in done.stdout
    for suite in COMMON:
        assert re.search(rf"^{suite.stem.title()} |\.{suite.stem.title()} ", done.stdout, re.MULTILINE), suite


@pytest.mark.slow
def test_the_suites_pass_on_the_smaller_board(example: Built, nucleo_elf: Path, tmp_path: Path) -> None:
    """The same files, the same images: training.robot compares with the same host simulator."""
    done = run_suites("--elf", nucleo_elf, "--program", example.program, "--results", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "board model: passed\nRenode: NOT RUN (renode/ has no description of nucleo_f446re)" in done.stdout
    for suite in COMMON:
        assert re.search(rf"^{suite.stem.title()} |\.{suite.stem.title()} ", done.stdout, re.MULTILINE), suite


@pytest.mark.parametrize("name", examples.EXAMPLES)
def test_the_examples_that_are_built_for_the_suites_fit_their_boards(name: str, tmp_path: Path) -> None:
    """Converted for the F746 the example fills its SRAM with records; the smaller board has no such SRAM."""
    examples.convert(tmp_path / "generated", *examples.EXAMPLES[name].options)
    plan = read_plan(tmp_path / "generated/plan.json")
    board = convert_boards.find(examples.EXAMPLES[name].environment)
    assert plan.replay is not None and plan.replay.all_in_sram <= board.sram
    assert (plan.external is not None) == (name == "qspi")


@pytest.mark.slow
def test_the_suites_pass_on_an_example_that_is_built_for_them(tmp_path: Path) -> None:
    suites = [RENODE / name for name in ("checkpoint.robot", "training.robot", "microtrain.robot")]
    done = run_suites("--example", "nucleo_f446re", "--results", tmp_path, *suites)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "board model: passed" in done.stdout


def test_an_example_and_a_firmware_are_one_too_many(tmp_path: Path) -> None:
    done = run_suites("--example", "qspi", "--elf", tmp_path / "firmware.elf")
    assert done.returncode == 1
    assert done.stderr == "Error: --example builds both: leave out --elf and --program.\n"


def test_without_variables_a_suite_means_the_f746s_board() -> None:
    disco = {f"${{{name}}}": value for name, value in boards.variables(STM32F746).items()}
    assert disco.items() <= board_variables().items()
    other = boards.variables(STM32F446)
    assert (other["UART"], other["USER_LED"]) == ("sysbus.usart2", "sysbus.gpioPortA.userLed")
    button = tuple(other[f"BUTTON_{part}"] for part in ("REGISTER", "MASK", "DOWN"))
    assert button == ("0x40020810", "0x2000", "0x0")
    assert (other["SECTOR"], other["STILL_ERASING_S"]) == ("0x08040000", "0.95")


def test_another_boards_names_are_refused(nucleo_elf: Path) -> None:
    keywords = BoardKeywords()
    keywords.execute_command(f"sysbus LoadELF @{nucleo_elf}")
    with pytest.raises(EmulatorError, match=r"nucleo_f446re has no UART .*: use sysbus\.usart2"):
        keywords.create_terminal_tester("sysbus.usart1")
    with pytest.raises(EmulatorError, match=r"nucleo_f446re has no LED .*: use sysbus\.gpioPortA\.userLed"):
        keywords.create_led_tester("sysbus.gpioPortI.userLed")
    for command in ("sysbus.gpioPortI.userButton Press", "sysbus.gpioPortG.labelButton Press"):
        with pytest.raises(EmulatorError, match="keep suites to what both"):
            keywords.execute_command(command)
    keywords.execute_command("sysbus.gpioPortC.userButton Press")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "right", "wrong"),
    [
        ("microtrain.robot", "ok pong", "ok nothing of the kind"),
        ("checkpoint.robot", "1 of step 1=${saved}", "1 of step 1=${newer}"),
        ("training.robot", "${last} < 0.8", "${last} < 0.1"),
        ("board.robot", "^start watchdog$", "^start power$"),
        ("flash.robot", "and=0f000f00", "and=ff0f0ff0"),
        ("frames.robot", "crc_hqx($header, 0xffff)", "crc_hqx($header, 0)"),
        ("hardware.robot", "2 << ${divider} - 4", "1 << ${divider} - 4"),
    ],
)
def test_a_failing_suite_fails_the_run(
    suite: str, right: str, wrong: str, example: Built, tmp_path: Path
) -> None:
    text = (RENODE / suite).read_text()
    assert right in text
    (tmp_path / suite).write_text(text.replace(right, wrong))
    for shared in (SHARED, RENODE / "board.resc"):
        (tmp_path / shared.name).write_text(shared.read_text())
    arguments = ("--elf", example.elf, "--program", example.program, "--results", tmp_path / "results")
    done = run_suites(*arguments, tmp_path / suite)
    assert done.returncode == 1, done.stderr
    assert "board model: FAILED" in done.stdout


@pytest.mark.slow
def test_weights_that_differ_from_the_simulators_are_noticed(example: Built, tmp_path: Path) -> None:
    """The session of another rate: the suite is right, the firmware is not the one that was simulated."""
    wrong = tmp_path / "wrong.sh"
    wrong.write_text(
        f'#!/bin/sh\n(echo "rate 1.01"; cat) | {example.program} | grep -v --line-buffered "ok rate"\n'
    )
    wrong.chmod(0o755)
    done = run_suites(
        "--elf", example.elf, "--program", wrong, "--results", tmp_path, RENODE / "training.robot"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "board model: FAILED" in done.stdout


def test_the_examples_suite_is_left_out_for_another_model(example: Built, tmp_path: Path) -> None:
    other = tmp_path / "other.sh"
    other.write_text(
        '#!/bin/sh\nprintf "microtrain native other 01234567\\r\\nready\\r\\n"\n'
        'read command; printf "input 8x8x1\\r\\nok\\r\\n"\nsleep 1\n'
    )
    other.chmod(0o755)
    arguments = ("--elf", example.elf, "--program", other, "--results", tmp_path)
    done = run_suites(*arguments, RENODE / "training.robot")
    assert "training.robot: left out, the firmware's input 8x8x1 is not the example's 32x32x1" in done.stdout
    assert done.returncode == 1
    assert "no suite is left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("said", "why"), [("input 48x48x3", "input 48x48x3"), ("classes 7", "classes 7")])
def test_the_examples_session_is_of_its_input_and_its_classes(said: str, why: str) -> None:
    class Talk:
        def command(self, _text: str) -> SimpleNamespace:
            name = said.split()[0]
            info = [line for line in ("input 32x32x1", "classes 10") if not line.startswith(name)]
            return SimpleNamespace(lines=[*info, said])

    with pytest.raises(golden_session.OtherModelError, match=f"{why} is not the example's"):
        golden_session._session(Talk(), "a model")  # type: ignore[arg-type]


def test_a_folder_with_a_space(example: Built, tmp_path: Path) -> None:
    folder = tmp_path / "my suites"
    folder.mkdir()
    for file in (SHARED, RENODE / "board.resc", example.elf):
        shutil.copy(file, folder)
    suite = folder / "ping.robot"
    suite.write_text(
        "*** Settings ***\nResource    keywords.resource\n"
        "*** Test Cases ***\nPing\n    Boot\n    Ask    ping    ^ok pong$\n"
    )
    done = run_suites("--elf", folder / example.elf.name, "--results", folder / "results", suite)
    assert done.returncode == 0, done.stdout + done.stderr


def renode_that(says: str, folder: Path) -> Path:
    """A Renode that says its version; its runner writes down which Python it has, and its arguments."""
    (folder / "renode").write_text(f"#!/bin/sh\necho 'Renode v{says}.2345'\n")
    record = folder / "record.txt"
    (folder / "renode-test").write_text(
        f'#!/bin/sh\n{{ command -v python3; echo "$VIRTUAL_ENV"; printf "%s\\n" "$@"; }} > {record}\n'
    )
    for program in ("renode", "renode-test"):
        (folder / program).chmod(0o755)
    return record


@pytest.mark.parametrize("version", ["1.16.1", "1.17.0"])
def test_renodes_runner_has_the_users_python(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = renode_that(version, tmp_path)
    ours = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (ours, tmp_path, "/usr/bin", "/bin"))))
    monkeypatch.setenv("VIRTUAL_ENV", str(ours.parent))
    assert robotrun.run_on_renode([tmp_path / "a b.robot"], {"ELF": "x y"}, tmp_path / "results") == 0
    python, environment, *arguments = record.read_text().splitlines()
    assert Path(python).parent != ours
    assert environment == ""
    assert arguments[2:] == ["--variable", "ELF:x y", str(tmp_path / "a b.robot")]
    said = "" if version == "1.16.1" else "Renode is 1.17.0; the suites"
    err = capsys.readouterr().err
    assert err.startswith(said) and bool(err) == bool(said)


def test_no_host_simulator_is_one_sentence(example: Built, tmp_path: Path) -> None:
    done = run_suites("--elf", example.elf, "--program", tmp_path / "none", RENODE / "training.robot")
    assert done.returncode == 1
    assert "pio run -e native" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "data").touch()
    done = run_suites("--elf", example.elf, "--program", tmp_path / "data", RENODE / "training.robot")
    assert done.returncode == 1 and "data cannot be started: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "some.elf").touch()
    done = run_suites("--elf", tmp_path / "some.elf", RENODE / "board.robot")
    assert done.returncode == 1 and "is not an ELF file" in done.stderr and "Traceback" not in done.stderr
