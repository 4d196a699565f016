# SPDX-License-Identifier: BSD-3-Clause
"""What all Python tests share: two devices, and ways to run a program in a process of its own."""

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Before torch is imported: loom reads its variables at the first use.
os.environ.setdefault("LOOM_DEVICES", "2")
# Grids of blocks are shared between cores on a host of any size.
os.environ.setdefault("LOOM_THREADS", "2")
# The oracle has to be right: with AMX, torch 2.13's oneDNN writes beyond its memory in a bfloat16
# convolution of cpu tensors (docs/design/testing.md). It reads this at its first use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch

import torch_loom  # noqa: F401

SECONDS = 120


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but for what torch 2.14 says to all users of a system of its own."""
    for message in ("`torch.jit", "Validating sparse tensor invariants because weights_only"):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@dataclass(frozen=True)
class Finished:
    """A process that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Finished]


@pytest.fixture
def no_fallback() -> Iterator[None]:
    """Fail where an operator of the test, in this process, waits for its operands. Random numbers
    are the same in every run."""
    torch.manual_seed(0)
    torch.loom.reset_fallbacks()
    yield
    assert torch.loom.fallbacks() == {}


@pytest.fixture
def memory_for_many_elements() -> Iterator[None]:
    """Memory for 2^32 elements of two bytes, fresh and given back to the system afterwards. Skip
    where there is none."""
    torch.loom.empty_cache()
    least = 2**33 + 2**28
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    if min(torch.loom.mem_get_info()[0], free) < least:
        pytest.skip("the test needs some 9 GiB of memory")
    yield
    gc.collect()
    torch.loom.synchronize()
    torch.loom.empty_cache()


@pytest.fixture
def run() -> Run:
    """Run Python source in a fresh process: ``run(source, LOOM_DEVICES="1", ...)``.

    A variable given as None is taken out of the environment. The process is killed, and the test
    fails, when it takes longer than two minutes.
    """

    def run_source(source: str, *arguments: str, **environment: str | None) -> Finished:
        variables = dict(os.environ)
        variables.pop("PYTEST_CURRENT_TEST", None)
        for name, value in environment.items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source), *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run_source


@pytest.fixture
def check(run: Run) -> Run:
    """Like :func:`run`, for programs that must succeed."""

    def run_and_check(source: str, *arguments: str, **environment: str | None) -> Finished:
        done = run(source, *arguments, **environment)
        assert done.code == 0, done.err
        return done

    return run_and_check


@pytest.fixture
def settable_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let flags of torch.backends be set, which PyTorch's own test utilities forbid."""
    variables = torch.backends.disable_global_flags.__globals__
    monkeypatch.setitem(variables, "__allow_nonbracketed_mutation_flag", True)


@pytest.fixture(autouse=True)
def leave_device_as_found() -> Iterator[None]:
    """No test sees the device, the stream or a kernel's error of another one."""
    yield
    torch.loom.set_stream(torch.loom.default_stream(1))
    torch.loom.set_stream(torch.loom.default_stream(0))
    torch.loom.synchronize(0)
    torch.loom.synchronize(1)
