"""How scripts read their arguments and how they end."""

import argparse
import sys
from collections.abc import Callable

from tfrecords.base.errors import UserError


def parser(about: str, module: str | None = None) -> argparse.ArgumentParser:
    """Returns a parser whose --help shows `about` as it is; `module` is what `python -m` takes, by default the file."""
    prog = module and f"python -m {module}"
    return argparse.ArgumentParser(prog, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def run(main: Callable[[], int | None]) -> None:
    """Ends the process with what `main` returns, 130 after Ctrl-C, or 1 and a line on stderr after a UserError."""
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
