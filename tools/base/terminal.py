"""What commands print. Names come from files and devices that are not trusted: nothing in them is obeyed."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.text import Text

from .errors import Error, printable


def say(text: str, err: bool = False) -> None:
    """Print a line, or several."""
    click.echo(printable(text), err=err)


class _Plain(Console):
    """A console for which [..] in a text is text, as is whatever else a terminal would obey."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **settings)


def console(**settings: Any) -> Console:
    """A terminal for tables and bars. settings: of rich.console.Console."""
    return _Plain(**{"markup": False, "highlight": False, **settings})


class Sentences(click.Group):
    """Prints what the user can mend as one sentence and exits with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Error as error:
            raise click.ClickException(str(error)) from error
