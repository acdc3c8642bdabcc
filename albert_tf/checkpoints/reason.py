"""What a library says went wrong, on one line."""


def reason(error: Exception) -> str:
    """The first line of the error's text; the error's name where it has none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
