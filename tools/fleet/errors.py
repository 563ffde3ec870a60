"""What a fleet refuses, each in one sentence."""

from __future__ import annotations

from microtrain.base.errors import Error


class FleetError(Error):
    """A message, a board or an answer that is refused; nothing has changed for it."""
