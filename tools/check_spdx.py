# SPDX-License-Identifier: BSD-3-Clause
"""Check that every file given opens with the licence's SPDX line."""

import sys
from pathlib import Path

LINE = "SPDX-License-Identifier: BSD-3-Clause"


def opens_with_licence(file: Path) -> bool:
    return any(LINE in line for line in file.read_text().splitlines()[:2])


if __name__ == "__main__":
    bare = [name for name in sys.argv[1:] if not opens_with_licence(Path(name))]
    print("".join(f"{name}: expected '{LINE}' in the first two lines\n" for name in bare), end="")
    sys.exit(bool(bare))
