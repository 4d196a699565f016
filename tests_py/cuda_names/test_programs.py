# SPDX-License-Identifier: BSD-3-Clause
"""Programs for CUDA that others wrote and packages carry, unmodified."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.usefixtures("loom_names"), pytest.mark.slow]

_RANKS = ("--gpus", "2", "-m", "torch.distributed.run", "--nproc-per-node=gpu", "--standalone")


def _scripts(package):
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"the test needs {package}")
    return Path(spec.submodule_search_locations[0])


def _run(*arguments):
    command = [sys.executable, "-W", "ignore", "-m", "torch_loom", "run", "--as-cuda"]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


# Each compares with a training on the cpu, or with itself in one process.
@pytest.mark.parametrize("script", ["test_script", "test_sync", "test_ops"])
def test_accelerate_in_one_process(script):
    out = _run(_scripts("accelerate") / "test_utils" / "scripts" / f"{script}.py")
    if script == "test_script":
        assert "Device: cuda" in out
        assert "Training yielded the same results on one CPU or distributed setup" in out


@pytest.mark.parametrize("script", ["test_script", "test_ddp_comm_hook"])
def test_accelerate_on_two_ranks(script):
    _run(*_RANKS, _scripts("accelerate") / "test_utils" / "scripts" / f"{script}.py")


@pytest.mark.parametrize("script", ["simple_timeit"])
def test_timers_of_torch(script):
    assert "us" in _run("-m", f"torch.utils.benchmark.examples.{script}")
