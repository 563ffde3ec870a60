"""What the user can mend."""

from microtrain.base.errors import Error


class ReportError(Error):
    """One sentence that names the thing and the way out."""
