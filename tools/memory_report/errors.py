"""What the user can mend."""


class ReportError(Exception):
    """One sentence that names the thing and the way out."""
