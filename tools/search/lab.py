"""What every trial of a search shares: the model, the images, and what the model's front makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from microtrain.convert.ir import Graph
from microtrain.convert.passes.cut import bottlenecks
from microtrain.samples.augment import Augmentation
from microtrain.samples.images import WAYS
from microtrain.samples.source import Dataset, Sample, vary
from microtrain.samples.stored import stored
from microtrain.simulate.records import View

FEW = Augmentation(WAYS, 2)  # more variants of each image would fill the disk with features


@dataclass(frozen=True, eq=False)
class Lab:
    """A model to train on images.

    graph       quantized forward graph
    training    images to learn from; validation: images to judge by
    folder      for what is computed once
    """

    graph: Graph
    classes: int
    training: Dataset
    validation: Dataset
    folder: Path
    augmentation: Augmentation = FEW

    @property
    def scratch(self) -> Path:
        """For files that nobody needs later."""
        return self.folder / "scratch"

    @property
    def features(self) -> Path:
        """What stands at every bottleneck(), int8 [views][sum of their elements]."""
        return self.folder / "features.s8"

    @cached_property
    def views(self) -> list[View]:
        """Every view of an image that trials see."""
        count = self.augmentation.needed(self.augmentation.variants)
        seen = [(sample.path, variant) for sample in self.training.samples for variant in range(count)]
        return [*seen, *((sample.path, 0) for sample in self.validation.samples)]

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Bottleneck -> where it begins in a row of the features, and its elements."""
        found, at = {}, 0
        for tensor in bottlenecks(self.graph):
            size = self.graph.tensors[tensor].elements
            found[tensor] = at, size
            at += size
        return found

    @property
    def width(self) -> int:
        """Bytes of a row of the features."""
        return sum(size for _, size in self.places.values())

    def view(self, sample: Sample, epoch: int | None) -> View:
        """What a session shows of a sample (device.session.Show)."""
        return sample.path, 0 if epoch is None else self.augmentation.of_epoch(epoch)

    def stored(self, view: View) -> np.ndarray:
        """A view as the model takes it, int8 [h][w][c]."""
        pixels = vary(view[0], self.graph.sample_shape, self.augmentation.kinds, view[1])
        return stored(pixels, self.graph.input)


def last_bottleneck(graph: Graph, layer: str) -> str:
    """The last of the bottlenecks that the layer depends on."""
    before: list[str] = [graph.input.tensor]
    for node in graph.forward_nodes:
        if node.layer == layer:
            break
        before += node.outputs
    return next(t for t in reversed(bottlenecks(graph)) if t in before)
