# SPDX-License-Identifier: BSD-3-Clause
"""A process that answers questions, one JSON line each, so that its crash costs one answer."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

SECONDS_TO_START = 240.0


class LineWorker:
    """Starts `python script arguments...`, whose first line on standard output is kept as `first`;
    exchange() then gets an answer to each question, or is told that there will be none.
    """

    def __init__(self, script: Path, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._patience = SECONDS_TO_START
        answer = self._next()
        if answer is None:
            ended = self.how_it_ended()
            self.kill()
            raise RuntimeError(f"the worker did not start: {ended}")
        self.first = json.loads(answer)

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next(self) -> str | None:
        try:
            return self._lines.get(timeout=self._patience)
        except queue.Empty:
            return None

    def exchange(self, question: Any, seconds: float) -> Any | None:
        """The answer, or None if the process ended or took longer."""
        self._patience = seconds
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            return None
        answer = self._next()
        return None if answer is None else json.loads(answer)

    def how_it_ended(self) -> tuple[str, str]:
        """What to say of a question without an answer: crash or hang, and how."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "hang", f"no answer within {self._patience:.0f} s"
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return "crash", f"the process ended with {name}"

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
