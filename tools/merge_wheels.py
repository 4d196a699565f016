#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes one wheel of several that were built with different versions of torch, or of Python.

What is compiled or generated for one minor version of torch goes into a folder for it, from which
torch_loom/_variants.py chooses; the rest must be the same in all.

    python tools/merge_wheels.py --output dist build/*/dist/torch_loom-*.whl
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path, PurePosixPath

PACKAGE = "torch_loom"
# In wheels of one version, what belongs to it. The rest are Python's modules.
_OF_ONE_TORCH = re.compile(rf"{PACKAGE}/(_C\.[^/]+\.so|_built_for\.py|lib/.+|include/.+)")


@dataclass(frozen=True)
class Wheel:
    """A wheel in memory."""

    name: str
    files: dict[str, bytes]
    modes: dict[str, int]

    @staticmethod
    def read(path: Path) -> Wheel:
        """Read a file."""
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            return Wheel(
                path.name,
                {entry.filename: archive.read(entry) for entry in entries},
                {entry.filename: entry.external_attr >> 16 for entry in entries},
            )

    @property
    def info(self) -> str:
        """The folder of its metadata."""
        return next(name for name in self.files if name.endswith(".dist-info/METADATA"))[:-9]

    @property
    def version(self) -> str:
        """Its own version."""
        return str(Parser().parsestr(self.files[f"{self.info}/METADATA"].decode())["Version"])

    @property
    def torch(self) -> str:
        """The minor version of torch that it was built for."""
        text = self.files[f"{PACKAGE}/_built_for.py"].decode()
        found = re.search(r'^TORCH = "(\d+\.\d+)"$', text, re.MULTILINE)
        if found is None:
            sys.exit(f"{self.name}: {PACKAGE}/_built_for.py does not say which torch it is for")
        return found[1]

    @property
    def tags(self) -> list[tuple[str, str, str]]:
        """What it can be installed on: Python, ABI and platform, by its extension modules."""
        platforms = self.name.removesuffix(".whl").rpartition("-")[2].split(".")
        extensions = (re.match(rf"{PACKAGE}/_C\.cpython-(\d+)-", name) for name in self.files)
        pythons = [f"cp{found[1]}" for found in extensions if found]
        return [(python, python, platform) for python in pythons for platform in platforms]


def moved(name: str, torch: str) -> str:
    """Where a file of a wheel for one version of torch is in one for several."""
    if not _OF_ONE_TORCH.fullmatch(name):
        return name
    return name.replace(f"{PACKAGE}/", f"{PACKAGE}/_torch{torch.replace('.', '')}/", 1)


def next_minor(version: str) -> str:
    """The minor version after one."""
    major, minor = map(int, version.split("."))
    return f"{major}.{minor + 1}"


def requirement(versions: list[str]) -> str:
    """What the merged wheel needs: the versions that it has, and none between that it lacks."""
    every = [versions[0]]
    while every[-1] != versions[-1]:
        every.append(next_minor(every[-1]))
    missing = [f"!={each}.*" for each in every if each not in versions]
    return ",".join([f"torch>={versions[0]}", *missing, f"<{next_minor(versions[-1])}"])


def metadata(text: str, torch: str) -> str:
    """METADATA whose dependency on torch is another one."""
    changed, count = re.subn(
        r"^Requires-Dist: torch\b(?![-\w]).*$", f"Requires-Dist: {torch}", text, flags=re.MULTILINE
    )
    if count != 1:
        sys.exit(f"METADATA names torch {count} times, not once")
    return changed


def merge(wheels: list[Wheel]) -> tuple[str, dict[str, bytes], dict[str, int]]:
    """The name, the files and their modes of the wheel that they make together."""
    if len({wheel.version for wheel in wheels}) != 1:
        sys.exit(
            "the wheels are of different versions: " + ", ".join(wheel.name for wheel in wheels)
        )
    info = wheels[0].info
    files: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    for wheel in wheels:
        for name, content in wheel.files.items():
            if name in (f"{info}/RECORD", f"{info}/WHEEL", f"{info}/METADATA"):
                continue
            place = moved(name, wheel.torch)
            # The same library, built once for each Python, need not have the same bytes.
            is_library = place.endswith(".so") and "/_C." not in place
            if files.setdefault(place, content) != content and not is_library:
                sys.exit(f"{wheel.name}: {name} differs from that of {wheels[0].name}")
            modes[place] = wheel.modes[name]
    versions = sorted(
        {wheel.torch for wheel in wheels}, key=lambda v: tuple(map(int, v.split(".")))
    )
    files[f"{info}/METADATA"] = metadata(
        wheels[0].files[f"{info}/METADATA"].decode(), requirement(versions)
    ).encode()
    tags = sorted({tag for wheel in wheels for tag in wheel.tags})
    lines = [
        line
        for line in wheels[0].files[f"{info}/WHEEL"].decode().splitlines()
        if line and not line.startswith("Tag:")
    ]
    lines += ["Tag: " + "-".join(tag) for tag in tags]
    files[f"{info}/WHEEL"] = ("\n".join(lines) + "\n").encode()
    joined = "-".join(".".join(sorted({tag[i] for tag in tags})) for i in range(3))
    return f"{PACKAGE}-{wheels[0].version}-{joined}.whl", files, modes


def record(files: dict[str, bytes], info: str) -> bytes:
    """RECORD: a line a file, with its hash and length."""
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return ("\n".join([*lines, f"{info}/RECORD,,"]) + "\n").encode()


def write(path: Path, files: dict[str, bytes], modes: dict[str, int], info: str) -> None:
    """Write a wheel: always the same bytes for the same files."""
    everything = {**files, f"{info}/RECORD": record(files, info)}
    # Metadata comes last in a wheel.
    order = sorted(everything, key=lambda name: (PurePosixPath(name).parts[0] == info, name))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in order:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = modes.get(name, 0o100644) << 16
            archive.writestr(entry, everything[name])


def main() -> None:
    """Merge the wheels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the folder to write to")
    parser.add_argument("wheels", type=Path, nargs="+", metavar="wheel")
    given = parser.parse_args()
    wheels = [Wheel.read(path) for path in sorted(given.wheels)]
    name, files, modes = merge(wheels)
    given.output.mkdir(parents=True, exist_ok=True)
    write(given.output / name, files, modes, wheels[0].info)
    print(given.output / name)


if __name__ == "__main__":
    main()
