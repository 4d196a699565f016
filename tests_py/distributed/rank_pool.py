# SPDX-License-Identifier: BSD-3-Clause
"""Processes that are the ranks of a group, and run functions of tests."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 100.0


class RankPool:
    """Ranks that live until close(), so that a test costs no start of processes.

    Args:
        count: how many.
        backend: what they give to ``init_process_group``, or None to leave it to the functions.
        timeout: of their operations, in seconds.
        hosts: a letter for each rank; ranks with the same one share memory. By default all do.
        environment: variables of theirs.
    """

    def __init__(
        self,
        count: int,
        backend: str | None = "cpu:gloo,loom:lccl",
        timeout: float = 60.0,
        hosts: str = "",
        **environment: str,
    ) -> None:
        self.count = count
        self.hosts = hosts
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self.processes: list[Any] = []
        for rank in range(count):
            host = {"LOOM_HOST_ID": hosts[rank]} if hosts else {}
            with _variables({"LOOM_THREADS": "1", **host, **environment}):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve, args=(theirs, rank, count, store, backend, timeout), daemon=True
                )
                process.start()
                theirs.close()
                self._pipes.append(ours)
                self.processes.append(process)
        self._collect()

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call function(*arguments) on all ranks; return what each returned.

        The function finds its rank by ``torch.distributed.get_rank()``.
        """
        self.start(function, *arguments)
        return self._collect()

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        """As run(), without waiting; each rank's answer() is to be taken."""
        for pipe in self._pipes:
            pipe.send((function, arguments))

    def answer(self, rank: int) -> Any:
        """What a rank's function returned. Raises what it raised, as text."""
        pipe = self._pipes[rank]
        if not pipe.poll(SECONDS):
            raise TimeoutError(f"rank {rank} has not answered within {SECONDS:.0f} s")
        is_error, value = pipe.recv()
        if is_error:
            raise AssertionError(f"rank {rank}: {value}")
        return value

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(10)
            if process.exitcode is None:
                process.kill()
                process.join()
        self._folder.cleanup()

    def _collect(self) -> list[Any]:
        answers, errors = [], []
        for rank in range(self.count):
            try:
                answers.append(self.answer(rank))
            except (AssertionError, EOFError, TimeoutError) as error:
                errors.append(f"rank {rank}: {error!r}" if not str(error) else str(error))
        if errors:
            raise AssertionError("\n".join(errors))
        return answers


@contextlib.contextmanager
def _variables(values: dict[str, str]) -> Any:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(
    pipe: Connection, rank: int, count: int, store: str, backend: str | None, timeout: float
) -> None:
    try:
        _join(rank, count, store, backend, timeout)
        pipe.send((False, None))
    except BaseException:
        pipe.send((True, traceback.format_exc()))
        raise
    while (call := pipe.recv()) is not None:
        function, arguments = call
        try:
            pipe.send((False, function(*arguments)))
        except BaseException:
            pipe.send((True, traceback.format_exc()))


def _join(rank: int, count: int, store: str, backend: str | None, timeout: float) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.loom.set_device(rank % torch.loom.device_count())
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank))
    if backend is not None:
        dist.init_process_group(
            backend,
            store=dist.FileStore(store, count),
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=timeout),
        )
