"""Pretrain the example's network on digits 0 to 6 and write it with its calibration images.

    python examples/digits/make_model.py [-o model.pt]

Takes one to two minutes on a CPU. Seeded and single-threaded: the same machine writes the same file again.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path

import click
import dataset
import numpy as np
import torch
from model import DigitNet
from torch.nn import functional

HERE = Path(__file__).parent
MEAN, STD = 0.5, 0.5
LOWEST_CONTRAST = -0.1
CALIBRATION_IMAGES = 32
LIMIT_BYTES = 200_000


def normalise(images: np.ndarray) -> torch.Tensor:
    """uint8 [N, H, W, C] to float32 [N, C, H, W], (pixel / 255 - mean) / std."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32)
    return (pixels / 255.0 - MEAN) / STD


def augment(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move images of uint8 [N, H, W, 1] by up to 2 pixels, slant by up to 0.15, change contrast and ground.

    Contrast is drawn from LOWEST_CONTRAST to 1: from as written, through fainter and fainter, to very faintly
    inverted in one image of eleven. The device's strong inversion, its pen and its slant remain unseen.
    """
    changed = np.empty_like(images)
    for i, image in enumerate(images[..., 0]):
        slanted = dataset.shear(image, rng.uniform(-0.15, 0.15))
        y, x = rng.integers(0, 5, size=2)
        moved = np.pad(slanted, 2)[y : y + image.shape[0], x : x + image.shape[1]]
        contrast = rng.uniform(LOWEST_CONTRAST, 1.0)
        ground = 255.0 * rng.uniform(max(0.0, -contrast), min(1.0, 1.0 - contrast))
        changed[i, :, :, 0] = np.rint(moved * contrast + ground)
    return changed


def train(images: np.ndarray, labels: np.ndarray, epochs: int, seed: int) -> DigitNet:
    """Adam with a one-cycle rate; returns the network in eval mode."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = DigitNet(dataset.PRETRAIN_CLASSES)
    target = torch.from_numpy(labels)
    batch = 25
    steps = epochs * (len(labels) // batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(epochs):
        inputs = normalise(augment(images, rng))
        for chosen in torch.from_numpy(rng.permutation(len(labels))).split(batch):
            loss = functional.cross_entropy(net(inputs[chosen]), target[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def accuracy(net: torch.nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """Fraction of images that `net` names rightly, one image at a time as on the device."""
    with torch.no_grad():
        answers = [int(net(x[None]).argmax()) for x in normalise(images)]
    return float(np.mean(np.array(answers) == labels))


def calibration_images() -> np.ndarray:
    """Pretraining digits for the ranges of the activations, uint8 [N, 32, 32, 1].

    Every second one has its contrast inverted, so that the ranges also hold where a camera sees dark
    ink on light paper: a plain inversion, not the device's paper, pen or slant.
    """
    images = dataset.pretrain_split()[0][:CALIBRATION_IMAGES].copy()
    images[1::2] = 255 - images[1::2]
    return images


def extra_json() -> str:
    """What travels in the file beside the network: calibration images, input normalisation, class names."""
    packed = io.BytesIO()
    np.savez_compressed(packed, images=calibration_images())
    extra = {
        "calibration": {"format": "npz-base64", "data": base64.b64encode(packed.getvalue()).decode("ascii")},
        "input": {"mean": [MEAN], "std": [STD]},
        "classes": [str(digit) for digit in range(dataset.PRETRAIN_CLASSES)],
    }
    return json.dumps(extra, sort_keys=True)


def save(net: DigitNet) -> bytes:
    """The bytes of a torch.export file, its JSON parts compressed and without the paths of this machine."""
    program = torch.export.export(net, (torch.zeros(1, 1, dataset.SIDE, dataset.SIDE),))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    stored, packed = io.BytesIO(), io.BytesIO()
    torch.export.save(program, stored, extra_files={"microtrain.json": extra_json()})
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(packed, "w") as target:
        for name in source.namelist():
            method = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
            target.writestr(zipfile.ZipInfo(name), source.read(name), method, 9)
    return packed.getvalue()


@click.command(help=__doc__)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default=HERE / "model.pt")
@click.option("--epochs", type=click.IntRange(min=1), default=150, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
def main(output: Path, epochs: int, seed: int) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_images, train_labels, test_images, test_labels = dataset.pretrain_split()
    net = train(train_images, train_labels, epochs, seed)
    data = save(net)
    if len(data) > LIMIT_BYTES:
        raise click.ClickException(
            f"the file would take {len(data)} bytes, over {LIMIT_BYTES}: narrow the network"
        )
    try:
        output.write_bytes(data)
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from error
    right = accuracy(net, test_images, test_labels)
    click.echo(f"{output}: {len(data)} bytes, {100 * right:.1f} % of {len(test_labels)} unseen digits 0 to 6")


if __name__ == "__main__":
    main()
