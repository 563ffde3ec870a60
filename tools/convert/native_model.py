"""A converted model that runs on this machine."""

from __future__ import annotations

from pathlib import Path

from microtrain.native.model import Model, Sgd, compile_model

from .emit.code import Output

__all__ = ["NativeModel", "Sgd"]


class NativeModel(Model):
    """Writes the generated files to `folder`, compiles and loads them."""

    def __init__(self, output: Output, folder: Path, compiler: str = "gcc") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in output.files.items():
            (folder / name).write_text(text)
        super().__init__(folder, compile_model(folder, folder, cc=compiler))
