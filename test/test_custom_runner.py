"""PlatformIO's reader of the lines that test/check.h prints; unlike its Unity runner it needs no download."""

from __future__ import annotations

import re

import click
from platformio import public as pio

LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+):(?P<name>\S+):(?P<status>PASS|FAIL)(?:: (?P<message>.*))?$")


class CustomTestRunner(pio.TestRunnerBase):  # type: ignore[misc]
    def on_testing_line_output(self, line: str) -> None:
        match = LINE.match(line.strip())
        if not match:
            click.echo(line, nl=False)
            return
        case = pio.TestCase(
            name=match["name"],
            status=pio.TestStatus.from_string(match["status"]),
            message=match["message"],
            source=pio.TestCaseSource(match["file"], int(match["line"])),
            stdout=line,
        )
        self.test_suite.add_case(case)
        click.echo(case.humanize())
