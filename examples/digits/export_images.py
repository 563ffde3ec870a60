"""Write the device's world as folders of PNG files, as `tools/device` and any other tool takes them.

    python examples/digits/export_images.py OUT

makes OUT/train/<class>/*.png and OUT/test/<class>/*.png, 32x32 grey; a file is named after the place of its
digit in the split.
"""

from __future__ import annotations

from pathlib import Path

import click
import dataset
import numpy as np
from PIL import Image


def write(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """One file per image of uint8 [N, H, W, 1], in a folder named by its label."""
    for label in sorted({int(k) for k in labels}):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(image[:, :, 0]).save(folder / str(int(label)) / f"{number:04d}.png")


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
def main(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        raise click.ClickException(f"{out} is not empty: name a new folder, or delete this one first")
    train_images, train_labels, test_images, test_labels = dataset.device_split()
    try:
        write(out / "train", train_images, train_labels)
        write(out / "test", test_images, test_labels)
    except OSError as error:
        raise click.ClickException(f"cannot write to {out}: {error.strerror}") from error
    click.echo(f"{out}: {len(train_labels)} images to train on, {len(test_labels)} to test with")


if __name__ == "__main__":
    main()
