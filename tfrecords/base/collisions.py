"""Other installed distributions that bring a package `serving` or `tfrecords` too.

pip writes both into one folder without a word, file over file; what breaks then breaks anywhere. Import names like
these are too common to hope that it never happens.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

_PACKAGES = ("serving", "tfrecords")
_OURS = ("albert_tf-", "albert_tf_client-")


def find_collisions(folders: Iterable[str] | None = None) -> list[str]:
    """Says which packages of ours several distributions own, a sentence each.

    Args:
        folders: Where to look for distributions; None: `sys.path`.

    Returns:
        The sentences, none where nothing collides.
    """
    owners: dict[str, set[str]] = {name: set() for name in _PACKAGES}
    # Read as bytes: importlib.metadata.packages_distributions() takes 0.3 s where TensorFlow is installed, this 0.03 s.
    for folder in sys.path if folders is None else folders:
        for record in Path(folder).glob("*.dist-info/RECORD"):
            lines = b"\n" + record.read_bytes()
            for name in _PACKAGES:
                if f"\n{name}/".encode() in lines or f"\n{name}.py,".encode() in lines:
                    owners[name].add(record.parent.name.removesuffix(".dist-info"))
    return [
        f"the package '{name}' is owned by {' and '.join(sorted(found))}, and one may have overwritten the other's "
        "files; keep them in separate virtual environments, or uninstall all of these and install the one you need"
        for name, found in owners.items()
        if len(found) > 1 or not all(owner.startswith(_OURS) for owner in found)
    ]
