# SPDX-License-Identifier: BSD-3-Clause
"""``python -m torch_loom``: versions, processor, devices, options in force, and a self-test.

Works where loom cannot be loaded, too, and then says why.
"""

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ._doctor import Situation
from ._machine import Machine

__all__ = ["print_report", "situation"]


def _torch_folder() -> Path | None:
    spec = find_spec("torch")
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def _torch_version() -> str:
    try:
        import torch
    except (ImportError, OSError):
        return ""
    return torch.__version__


def _entry_points() -> list[str]:
    return [point.name for point in importlib.metadata.entry_points(group="torch.backends")]


def situation(load_problem: str) -> Situation:
    """Look at this process and its machine.

    Args:
        load_problem (str): why loom could not be loaded; ``""`` asks the library, too.
    """
    machine = Machine()
    if load_problem:
        return Situation(
            machine,
            os.environ,
            torch_version=_torch_version(),
            torch_folder=_torch_folder(),
            load_problem=load_problem,
            backends=_entry_points(),
            core_count=machine.core_count(machine.allowed_cpus()),
        )
    from . import _C, loom

    problem, count, cores, simd, compiles = "", 1, 1, "", True
    try:
        count = loom.device_count()
        devices = [loom.get_device_properties(index) for index in range(count)]
        cores = sum(device.core_count for device in devices)
        simd = devices[0].simd
        from ._self_test import compiles_programs

        compiles = compiles_programs()
    except RuntimeError as error:  # a LOOM_* variable with a bad value
        problem = str(error)
    return Situation(
        machine,
        os.environ,
        torch_version=_torch_version(),
        torch_folder=_torch_folder(),
        start_problem=problem,
        backends=_entry_points(),
        options=[name for name, _, _ in _C._option_table()],
        device_count=count,
        core_count=cores,
        instruction_set=simd,
        compiles_programs=compiles,
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _versions(machine: Machine) -> Iterator[tuple[str, str]]:
    libraries = machine.loaded_libraries()
    library = next((path for path in libraries if path.name.startswith("libtorch_loom")), None)
    try:
        version = importlib.metadata.version("torch-loom")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    yield "torch-loom", version
    yield "library", str(library or "not loaded")
    yield (
        "torch",
        f"{_torch_version()} in {_torch_folder()}" if _torch_folder() else "not installed",
    )
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"


def _processor(machine: Machine) -> Iterator[tuple[str, str]]:
    allowed, online = machine.allowed_cpus(), machine.online_cpus()
    of_all = "" if len(allowed) == len(online) else f" of {len(online)}"
    yield "processor", machine.processor()
    yield (
        "allowed",
        f"{len(allowed)}{of_all} hardware threads on {machine.core_count(allowed)} cores",
    )
    limit = machine.cpu_limit()
    if limit is not None:
        yield "granted", f"{limit:g} processors by the control group"
    memory = machine.memory_limit()
    granted = "" if memory is None else f", {_gib(memory)} by the control group"
    yield "memory", f"{_gib(machine.memory_bytes())}{granted}"


def _devices(found: Situation) -> Iterator[tuple[str, str]]:
    from . import loom

    for index in range(loom.device_count()):
        properties = loom.get_device_properties(index)
        node = "" if properties.numa_node < 0 else f", NUMA node {properties.numa_node}"
        caches = (properties.l1_cache, properties.l2_cache, properties.l3_cache)
        yield (
            f"loom:{index}",
            f"{properties.core_count} cores (processors {properties.cpus}{node}), "
            f"{properties.simd}, {_gib(properties.total_memory)}, caches "
            f"{', '.join(f'{size >> 10} KiB' for size in caches)}",
        )
    compiled = "yes" if found.compiles_programs else "no: fused programs are interpreted"
    yield "jit", compiled
    given = [f"{name}={os.environ[name]}" for name in found.options if name in os.environ]
    yield "options", " ".join(given) or "none is set (`python -m torch_loom env` lists them)"


def _self_test() -> tuple[bool, str]:
    from ._self_test import run

    start = time.perf_counter()
    results = run()
    seconds = time.perf_counter() - start
    wrong = {name: problem for name, problem in results.items() if problem}
    if not wrong:
        return (
            True,
            f"{len(results)} of {len(results)} as on cpu ({', '.join(results)}; {seconds:.1f} s)",
        )
    lines = [f"{name} FAILED: {problem.splitlines()[0]}" for name, problem in wrong.items()]
    return False, f"{len(results) - len(wrong)} of {len(results)} as on cpu; {'; '.join(lines)}"


def print_report(load_problem: str) -> int:
    """Print the report.

    Returns:
        int: 0 if loom works.
    """
    machine = Machine()
    rows = [*_versions(machine), *_processor(machine)]
    found = situation(load_problem)
    problem = load_problem or found.start_problem
    passed = False
    if problem:
        rows.append(("loom", f"DOES NOT WORK: {problem}"))
    else:
        rows += _devices(found)
        passed, text = _self_test()
        rows.append(("self-test", text))
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:<{width}}  {text}" for name, text in rows))
    print("`python -m torch_loom doctor` says what slows loom down here.")
    return 0 if passed else 1
