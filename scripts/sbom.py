"""Puts a list of packages (SBOM: CycloneDX in JSON, PEP 770) into a wheel: its dependencies at their locked versions.

The wheel itself holds no package of others. The list says which versions it was tested with, what each of them needs,
and the hashes that the index has of them.
"""

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock import LOCKED
from tfrecords.base.files import replacing

_PYTHONS = ("3.11", "3.12", "3.13")


class Locked(NamedTuple):
    """A locked package: its version, the SHA-256 of its files, and the packages that asked for it."""

    version: str
    hashes: list[str]
    asked_by: list[str]


def locked_packages() -> dict[str, Locked]:
    """Reads the library's locked file: the packages that Linux needs, by name."""
    found: dict[str, Locked] = {}
    for block in re.split(r"\n(?=\w)", (LOCKED / "requirements.txt").read_text("utf-8")):
        requirement = Requirement(block.split("\\")[0].strip())
        hashes = re.findall(r"--hash=sha256:(\w+)", block)
        asked_by = [name for name in re.findall(r"#\s+(?:via )?([\w.-]+)$", block, re.MULTILINE) if name != "via"]
        if _is_needed(requirement):
            version = str(requirement.specifier).removeprefix("==")
            found[canonicalize_name(requirement.name)] = Locked(version, hashes, asked_by)
    return found


def _is_needed(requirement: Requirement) -> bool:
    linux = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    return requirement.marker is None or any(
        requirement.marker.evaluate(linux | {"python_version": python, "python_full_version": f"{python}.0"})
        for python in _PYTHONS
    )


def sbom(name: str, version: str, direct: list[str], packages: dict[str, Locked]) -> dict[str, Any]:
    """Returns the list of a distribution and of all packages that its `direct` dependencies lead to."""
    needs = {one: sorted(other for other, of in packages.items() if one in of.asked_by) for one in packages}
    direct = sorted(canonicalize_name(one) for one in direct)
    reached, left = set[str](), list(direct)
    while left:
        if (one := left.pop()) not in reached:
            reached.add(one)
            left += needs[one]
    purl = {one: f"pkg:pypi/{one}@{packages[one].version}" for one in sorted(reached)}
    root = f"pkg:pypi/{name}@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "bom-ref": root, "name": name, "version": version, "purl": root}},
        "components": [
            {"type": "library", "bom-ref": ref, "name": one, "version": packages[one].version, "purl": ref}
            | {"externalReferences": [_files_of(one, packages[one])]}
            for one, ref in purl.items()
        ],
        "dependencies": [
            {"ref": root, "dependsOn": [purl[one] for one in direct]},
            *({"ref": ref, "dependsOn": [purl[other] for other in needs[one]]} for one, ref in purl.items()),
        ],
    }


def _files_of(name: str, package: Locked) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": one} for one in sorted(package.hashes)]
    return {"type": "distribution", "url": f"https://pypi.org/project/{name}/{package.version}/", "hashes": hashes}


def add_sbom(wheel: Path) -> None:
    """Writes the list into a wheel's .dist-info/sboms and RECORD. The same wheel gives the same bytes."""
    with zipfile.ZipFile(wheel) as archive:
        members = {one: archive.read(one) for one in archive.infolist()}
    infos = {one.filename: one for one in members}
    (folder,) = {name.split("/")[0] for name in infos if name.endswith(".dist-info/METADATA")}
    metadata = message_from_bytes(members[infos[f"{folder}/METADATA"]])
    direct = [one.name for one in map(Requirement, metadata.get_all("Requires-Dist")) if not one.marker]
    values = sbom(canonicalize_name(metadata["Name"]), metadata["Version"], direct, locked_packages())
    content = (json.dumps(values, indent=1) + "\n").encode()
    record = infos[f"{folder}/RECORD"]
    place = f"{folder}/sboms/{folder.split('-')[0]}.cdx.json"
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([place, f"sha256={digest}", len(content)])
    rows = members[record].decode().splitlines(keepends=True)
    members[record] = "".join([*rows[:-1], line.getvalue(), rows[-1]]).encode()
    new = zipfile.ZipInfo(place, record.date_time)
    new.compress_type, new.external_attr, new.create_system = zipfile.ZIP_DEFLATED, record.external_attr, 3
    with replacing(wheel) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for info, data in [*members.items(), (new, content)]:
            if info is not record:
                archive.writestr(info, data)
        # By custom RECORD is the last one.
        archive.writestr(record, members[record])
