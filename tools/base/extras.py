"""Packages that not everyone needs: extras of the package, asked for where they are used."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import Error


def require(extra: str, what: str, *modules: str) -> None:
    """Error, naming the extra to install, where one of the modules is not there.

    what  that wants them, as the subject of the sentence
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise Error(
            f"{what} needs {' and '.join(missing)}, not installed here: `pip install 'microtrain[{extra}]'`."
        )
