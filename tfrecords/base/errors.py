"""The one exception a script turns into one line: something the user gave us is wrong, and can be mended."""


class UserError(ValueError):
    """Bad input. The message is one line that names the value and says what would be right."""


def first_line(error: Exception) -> str:
    """Gives the first line of what a library says went wrong; the error's name where it says nothing."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
