# SPDX-License-Identifier: BSD-3-Clause
"""Starts a script as a user does, with torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SECONDS = 240


def torchrun(folder: Path, source: str, ranks: int, *options: str) -> str:
    """Run `source` on so many ranks, with torchrun's own `options`. Return what they print; fail
    with what they say where one of them does."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            *options,
            str(script),
        ],
        # torchrun gives each rank a device, unless there are said to be others.
        env={k: v for k, v in os.environ.items() if k not in ("LOOM_DEVICES", "RANK")}
        | {"LOOM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
