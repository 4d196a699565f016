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
    """Run `source` on so many ranks, with torchrun's own `options`. Return what they print, one
    rank after the other; fail with what they say where one of them does."""
    script, logs = folder / "script.py", folder / "logs"
    script.write_text(textwrap.dedent(source))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            # A file for each: torchrun starts `python -u`, which writes a line in several pieces,
            # so in one file the lines of ranks would be mixed.
            "--redirects=1",
            f"--log-dir={logs}",
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
    # Of each start of the ranks, then of each rank.
    out = "".join(path.read_text() for path in sorted(logs.glob("*/attempt_*/*/stdout.log")))
    assert done.returncode == 0, out + done.stdout + done.stderr
    return out
