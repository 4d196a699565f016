#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes stubs of an old glibc's libraries, to link a library that runs wherever that glibc does.

A library that is linked here needs the newest version of each function that this machine's glibc
has. Linked with the stubs, which name what glibc 2.28 had and define nothing, it needs those. The
stubs are made by zig (PyPI's ziglang), which has the lists of names of all glibcs:

    pip install ziglang
    python tools/glibc_stubs.py build/glibc-2.28
    cmake ... -DLOOM_GLIBC_STUBS=build/glibc-2.28
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# What manylinux_2_28 allows: that of RHEL 8 and Debian 10.
VERSION = "2.28"
LIBRARIES = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1")


def make_stubs(folder: Path, version: str) -> None:
    """Fill a folder with the stubs and the names by which a linker looks for them."""
    machine = os.uname().machine
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "empty.c")
        source.write_text("int main(void) { return 0; }\n")
        subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "ziglang",
                    "cc",
                    "-target",
                    f"{machine}-linux-gnu.{version}",
                ),
                *(
                    str(source),
                    "-o",
                    str(source.with_suffix("")),
                    "-lm",
                    "-ldl",
                    "-lpthread",
                    "-lrt",
                ),
            ],
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch},
            check=True,
        )
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*LIBRARIES, "libc_nonshared.a"):
            (made,) = Path(scratch).glob(f"o/*/{name}")
            shutil.copy(made, folder / name)
    for name in LIBRARIES:
        stem = name.partition(".so")[0]
        (folder / f"{stem}.so").unlink(missing_ok=True)
        (folder / f"{stem}.so").symlink_to(name)
    # What a program calls of the C library is partly in its shared object, partly in an archive.
    (folder / "libc.so").unlink()
    (folder / "libc.so").write_text("GROUP ( libc.so.6 libc_nonshared.a )\n")


def main() -> None:
    """Make the stubs in the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", default=VERSION, help="that of the old glibc (%(default)s)")
    given = parser.parse_args()
    make_stubs(given.folder.absolute(), given.version)


if __name__ == "__main__":
    main()
