"""How samples vary from epoch to epoch."""

from __future__ import annotations

from dataclasses import dataclass

from .images import WAYS


@dataclass(frozen=True)
class Augmentation:
    """kinds: of variation, as a kind of sample names them; variants: of each, the first as it is."""

    kinds: tuple[str, ...] = WAYS
    variants: int = 8

    def of_epoch(self, epoch: int) -> int:
        """The variant that is seen in an epoch."""
        return epoch % self.variants if self.kinds else 0

    def needed(self, epochs: int) -> int:
        """Variants that a session of so many epochs sees."""
        return min(epochs, self.variants) if self.kinds else 1
