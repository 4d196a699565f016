# SPDX-License-Identifier: BSD-3-Clause
"""What ``python -m torch_loom doctor`` finds, on machines made of files, and how it ends."""

import re
from pathlib import Path

import pytest

from torch_loom._doctor import Severity, Situation, examine, report
from torch_loom._machine import Machine

GIB = 1 << 30


class Root:
    """A folder with the files of a machine: four cores of two hardware threads, 16 GiB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("sys/devices/system/cpu/online", "0-7")
        for cpu in range(8):
            siblings = f"{cpu % 4},{cpu % 4 + 4}"
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some Processor\nflags\t: avx2\n")
        self.write("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-3\n")
        self.write("proc/meminfo", f"MemTotal:       {16 * GIB >> 10} kB\nMemFree: 1 kB\n")
        self.write("proc/loadavg", "0.10 0.20 0.30 1/100 1234")
        self.write("proc/self/maps", "")
        self.write("proc/self/cgroup", "0::/user/job\n")
        self.write(
            "proc/self/mountinfo", "30 20 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
        )
        self.write("sys/fs/cgroup/user/job/cpu.max", "max 100000")
        self.write("sys/fs/cgroup/user/job/memory.max", "max")

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def machine(self) -> Machine:
        return Machine(self.folder)

    def examine(self, environment=None, **details):
        details.setdefault("core_count", 4)
        return examine(Situation(self.machine(), environment or {}, **details))


@pytest.fixture
def root(tmp_path):
    # Only four of the eight hardware threads are allowed, one of each core.
    made = Root(tmp_path)
    made.write("sys/devices/system/cpu/online", "0-3")
    return made


def only(findings):
    assert len(findings) == 1, report(findings)
    return findings[0]


def test_a_quiet_machine_has_no_findings(root):
    assert root.examine() == []
    assert report([]) == "Loom works, and nothing here slows it down."


def test_the_machine_is_what_its_files_say(tmp_path):
    machine = Root(tmp_path).machine()
    assert machine.processor() == "Some Processor"
    assert machine.online_cpus() == list(range(8))
    assert machine.allowed_cpus() == [0, 1, 2, 3]
    assert machine.core_count([0, 4, 1]) == 2
    assert machine.memory_bytes() == 16 * GIB
    assert machine.cpu_limit() is None
    assert machine.memory_limit() is None


def test_a_machine_without_files_is_no_error(tmp_path):
    machine = Machine(tmp_path)
    assert machine.processor() == "unknown processor"
    assert machine.allowed_cpus() == []
    assert machine.memory_bytes() == 0
    assert machine.loaded_libraries() == []
    assert examine(Situation(machine, {})) == []


def test_this_machine_is_what_the_library_says(check):
    out = check(
        """
        import torch
        from torch_loom._machine import Machine
        machine, device = Machine(), torch.loom.get_device_properties(0)
        assert device.cpus == machine.allowed_cpus(), (device.cpus, machine.allowed_cpus())
        limit = machine.cpu_limit()
        cores = machine.core_count(machine.allowed_cpus())
        assert device.core_count == (cores if limit is None else max(1, min(cores, -(-limit // 1))))
        usable = min(machine.memory_bytes(), machine.memory_limit() or 1 << 62)
        assert abs(device.total_memory - usable * 3 / 4) <= 4096
        print(device.name == machine.processor())
        """,
        LOOM_DEVICES="1",
        LOOM_THREADS=None,
        LOOM_MEMORY_LIMIT=None,
    ).out
    assert out == "True\n"


def test_limits_of_all_groups_above_count(root):
    root.write("sys/fs/cgroup/user/cpu.max", "250000 100000")
    root.write("sys/fs/cgroup/user/job/cpu.max", "300000 100000")
    root.write("sys/fs/cgroup/user/memory.max", str(2 * GIB))
    assert root.machine().cpu_limit() == 2.5
    assert root.machine().memory_limit() == 2 * GIB


def test_a_container_that_sees_its_own_group_has_its_limits(root):
    root.write("proc/self/cgroup", "0::/docker/0123abcd")
    root.write("sys/fs/cgroup/cpu.max", "100000 100000")
    assert root.machine().cpu_limit() == 1


def test_limits_of_the_first_version_of_control_groups_count(root):
    root.write("proc/self/cgroup", "4:cpu,cpuacct:/a\n7:memory:/a")
    root.write(
        "proc/self/mountinfo",
        "31 20 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 20 0:27 / /cg/memory rw - cgroup cgroup rw,memory",
    )
    root.write("cg/cpu/a/cpu.cfs_quota_us", "150000")
    root.write("cg/cpu/a/cpu.cfs_period_us", "50000")
    root.write("cg/cpu/cpu.cfs_quota_us", "-1")
    root.write("cg/memory/a/memory.limit_in_bytes", str(GIB))
    root.write("cg/memory/memory.limit_in_bytes", "9223372036854771712")
    assert root.machine().cpu_limit() == 3
    assert root.machine().memory_limit() == GIB


def test_huge_pages_that_are_off_are_slow(root):
    root.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")
    found = only(root.examine())
    assert found.severity is Severity.SLOW
    assert "sudo tee /sys/kernel/mm/transparent_hugepage/enabled" in found.remedy


@pytest.mark.parametrize(
    ("quota", "cores", "severity", "text"),
    [
        ("200000 100000", 4, Severity.SLOW, "LOOM_THREADS=2"),
        ("150000 100000", 2, Severity.SLOW, "whole number of processors"),
        ("200000 100000", 2, Severity.NOTE, "more processors"),
    ],
)
def test_a_limit_of_processor_time(root, quota, cores, severity, text):
    root.write("sys/fs/cgroup/user/job/cpu.max", quota)
    found = only(root.examine(core_count=cores))
    assert found.severity is severity
    assert text in found.remedy


def test_an_affinity_mask_is_a_note(root):
    root.write("proc/self/status", "Cpus_allowed_list:\t0-1")
    found = only(root.examine(core_count=2))
    assert found.severity is Severity.NOTE
    assert "2 of 4 processors" in found.what


@pytest.mark.parametrize(
    ("threads", "severity"), [(4, Severity.NOTE), (6, Severity.SLOW), (9, Severity.SLOW)]
)
def test_hardware_threads_of_one_core(tmp_path, threads, severity):
    root = Root(tmp_path)
    root.write("proc/self/status", "Cpus_allowed_list:\t0-7")
    found = only(root.examine(core_count=threads))
    assert found.severity is severity
    if severity is Severity.SLOW:
        assert "set it to 4" in found.remedy


def test_other_programs_that_run_are_slow(root):
    root.write("proc/loadavg", "3.50 1.00 1.00 5/100 1234")
    assert "3.5 of 4 processors" in only(root.examine()).what


def test_more_memory_than_there_is_breaks(root):
    root.write("sys/fs/cgroup/user/job/memory.max", str(4 * GIB))
    assert only(root.examine()).severity is Severity.NOTE
    found = only(root.examine({"LOOM_MEMORY_LIMIT": "3G"}, device_count=2))
    assert found.severity is Severity.BREAKS
    assert found.remedy.endswith("at most 1536M")


def libgomp(root: Root, path: str, version: str) -> Path:
    root.write(path, f"\0GOMP_1.0\0GOMP_{version}\0GOMP_spin\0")
    return root.folder / path


def loaded(root: Root, *paths: Path) -> None:
    lines = [f"7f00-7f01 r-xp 0000 08:01 {number} {path}" for number, path in enumerate(paths)]
    root.write("proc/self/maps", "\n".join(["7ffe-7fff rw-p 0000 00:00 0 [stack]", *lines]))


def test_an_older_libgomp_than_torchs_is_slow(root):
    own = libgomp(root, "torch/lib/libgomp.so.1", "5.0.1")
    old = libgomp(root, "usr/lib/libgomp.so.1.0.0", "4.5")
    new = libgomp(root, "opt/lib/libgomp.so.1", "5.1")
    for path, count in ((own, 0), (new, 0), (old, 1)):
        loaded(root, path)
        found = root.examine(torch_folder=root.folder / "torch")
        assert len(found) == count, path
    assert "older libgomp" in found[0].what


def test_two_openmp_runtimes_are_slow(root):
    own = libgomp(root, "torch/lib/libgomp.so.1", "5.0.1")
    loaded(root, own, own, Path("/opt/intel/libiomp5.so"))
    found = only(root.examine(torch_folder=root.folder / "torch"))
    assert "libiomp5.so" in found.what


def test_a_torch_that_does_not_fit_breaks(root):
    found = only(root.examine(torch_version="2.1.0", load_problem="expected torch 2.13"))
    assert found.severity is Severity.BREAKS
    assert "torch 2.1.0: expected torch 2.13" in found.what


def test_another_backend_is_named(root):
    backends = ("torch_loom", "torch_npu")
    assert only(root.examine(backends=backends)).severity is Severity.NOTE
    found = root.examine(backends=backends, load_problem="another backend was renamed")
    assert [each.severity for each in found] == [Severity.BREAKS] * 2
    assert "torch_npu" in found[1].what


@pytest.mark.parametrize(
    ("environment", "severity", "text"),
    [
        ({"LOOM_LAUNCH_BLOCKING": "1"}, Severity.SLOW, "every launch waits"),
        ({"LOOM_MEMORY": "isolated"}, Severity.SLOW, "share no memory"),
        ({"LOOM_SIMD": "avx2"}, Severity.SLOW, "narrows the kernels"),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, Severity.NOTE, "does not load loom"),
    ],
)
def test_variables_that_cost_something(root, environment, severity, text):
    found = only(root.examine(environment, options=list(environment)))
    assert found.severity is severity
    assert text in found.what


def test_a_variable_that_is_no_option_is_a_note(root):
    found = only(root.examine({"LOOM_COLOUR": "blue"}, options=["LOOM_MEMORY"]))
    assert found.severity is Severity.NOTE
    assert found.what.startswith("LOOM_COLOUR is set")


def test_variables_that_contradict_each_other_are_named(root):
    both = {"LOOM_LAUNCH_BLOCKING": "1", "LOOM_ERROR_STACKS": "1"}
    assert any("adds nothing" in found.what for found in root.examine(both))


def test_variables_of_the_build_and_the_tests_are_nobodys_business(root):
    environment = {"LOOM_TEST_PROGRAMS": "5", "LOOM_BUILD_TORCH": "x", "LOOM_MEMORY": "unified"}
    assert root.examine(environment, options=["LOOM_MEMORY"]) == []


def test_programs_that_are_interpreted_are_slow_unless_asked_for(root):
    assert "interpreted" in only(root.examine(compiles_programs=False)).what
    found = only(root.examine({"LOOM_FUSION_JIT": "0"}, compiles_programs=False))
    assert found.what.startswith("LOOM_FUSION_JIT=0")


def test_the_worst_comes_first_and_is_counted(root):
    root.write("proc/loadavg", "9 9 9 1/1 1")
    text = report(root.examine({"LOOM_X": "1"}, options=["LOOM_Y"], load_problem="no"))
    assert re.findall(r"^(\w+) ", text, re.MULTILINE)[:3] == ["BREAKS", "slow", "note"]
    assert text.endswith("1 of these break loom.")


def test_the_command_succeeds_where_nothing_breaks(check):
    out = check("from torch_loom.__main__ import main; raise SystemExit(main(['doctor']))").out
    assert "Loom works" in out


def test_the_command_fails_for_a_bad_variable(run):
    source = "from torch_loom.__main__ import main; raise SystemExit(main(['doctor']))"
    done = run(source, LOOM_THREADS="many")
    assert done.code == 1
    assert "BREAKS  LOOM_THREADS: expected" in done.out
