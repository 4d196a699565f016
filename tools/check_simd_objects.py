# SPDX-License-Identifier: BSD-3-Clause
"""Check objects compiled for one instruction set: `check_simd_objects.py nm object...`.

The linker keeps one of all equal inline functions of a program. If such an object had one, other
code might get the one for instructions that the processor lacks, so none may be left: functions for
an instruction set are in a namespace of its own (cpp/loom/simd/versions.h), or inlined.
"""

import re
import subprocess
import sys

OWN = re.compile(r"\b(scalar|neon|avx2|avx512|avx512_bf16)::")


def shared_functions(nm: str, path: str) -> list[str]:
    """Return the functions of an object that other objects may have, too."""
    symbols = subprocess.run(
        [nm, "--demangle", "--defined-only", path], check=True, capture_output=True, text=True
    )
    weak = (line.split(" ", 2) for line in symbols.stdout.splitlines() if " W " in line)
    return [name for _, _, name in weak if not OWN.search(name)]


def main() -> int:
    nm, *paths = sys.argv[1:]
    found = [f"{path}: {name}" for path in paths for name in shared_functions(nm, path)]
    for line in found:
        print(line)
    if not paths:
        print("no objects to check")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
