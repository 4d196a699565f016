# SPDX-License-Identifier: BSD-3-Clause
"""Runs the benchmarks, one after the other, each in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

NAMES = (
    "launch",
    "copies",
    "host_neutrality",
    "products",
    "shapes",
    "cross_entropy",
    "channels_last",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    chosen = parser.parse_args().names or NAMES
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        parser.error(f"expected names of {', '.join(NAMES)}, got {', '.join(unknown)}")
    folder = Path(__file__).parent
    return max(subprocess.call([sys.executable, folder / f"{name}.py"]) for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
