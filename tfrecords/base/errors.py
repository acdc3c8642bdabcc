"""The one exception a script turns into one line: something the user gave us is wrong, and can be mended."""


class UserError(ValueError):
    """Bad input. The message is one line that names the value and says what would be right."""
