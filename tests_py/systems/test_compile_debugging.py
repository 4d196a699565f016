# SPDX-License-Identifier: BSD-3-Clause
"""Debugging torch.compile: logs, traces, the debugger's files, explanations, the minifier."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

PROGRAM = """
    import torch
    @torch.compile
    def function(x, w):
        y = torch.relu(x @ w) * 2
        torch._dynamo.graph_break()
        return torch.softmax(y, -1).sum(0)
    x, w = torch.randn(20, 30, device="loom"), torch.randn(30, 10, device="loom")
    print(function(x, w).sum().item())
"""


def test_logs_of_what_is_traced_generated_and_broken(check, tmp_path):
    names = "graph_breaks,graph_code,aot_graphs,post_grad_graphs,fusion,schedule,output_code"
    done = check(PROGRAM, TORCH_LOGS=names, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert float(done.out) == pytest.approx(20, abs=1e-3)
    assert "torch._dynamo.graph_break()" in done.err  # where it breaks
    assert 'x: "f32[20, 30][30, 1]loom:0"' in done.err.replace("L_x_", "x")
    assert "torch.ops.aten.mm.default" in done.err
    assert "loom_kernel::run_blocks" in done.err or "static void" in done.err
    assert "loom_kernel_launch(loom_device" in done.err


def test_logs_of_recompilations_name_the_guard(check):
    done = check(
        """
        import torch
        f = torch.compile(lambda x, n: x * n, dynamic=False)
        x = torch.ones(3, device="loom")
        f(x, 2), f(x, 3)
        """,
        TORCH_LOGS="recompiles,guards",
    )
    assert "n == 2" in done.err.replace("L['n']", "n")
    assert "PrivateUse1" in done.err  # a guard of a tensor has its dispatch keys


def test_a_generated_kernel_is_logged_by_its_own_logger(check, tmp_path):
    done = check(PROGRAM, TORCH_LOGS="kernel_code", TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    assert "loom kernel:" in done.err
    assert "#include <torch_loom/kernel.h>" in done.err


def debug_folders(check, folder: Path) -> list[Path]:
    check(
        PROGRAM,
        TORCH_COMPILE_DEBUG="1",
        TORCH_COMPILE_DEBUG_DIR=str(folder),
        TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"),
    )
    return sorted(p.parent for p in folder.glob("torch_compile_debug/*/*/*/output_code.py"))


def run_file(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def output_of(path: Path) -> str:
    done = run_file(path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_files_of_the_debugger(check, tmp_path):
    folders = debug_folders(check, tmp_path)
    assert len(folders) == 2  # before and after the break
    for folder in folders:
        names = {p.name for p in folder.iterdir()}
        assert names >= {
            "fx_graph_readable.py",
            "fx_graph_runnable.py",
            "fx_graph_transformed.py",
            "ir_post_fusion.txt",
            "ir_pre_fusion.txt",
            "output_code.py",
        }
        assert "device(type='loom', index=0)" in (folder / "fx_graph_runnable.py").read_text()
        code = (folder / "output_code.py").read_text()
        assert "loom_kernel_launch" in code or "loom_program" in code


def test_files_of_the_debugger_run_by_themselves(check, tmp_path):
    folder = debug_folders(check, tmp_path)[0]
    output_of(folder / "fx_graph_runnable.py")
    seconds = output_of(folder / "output_code.py")  # which times the graph
    assert float(seconds.split()[-1]) >= 0


def test_the_trace_of_a_process_and_its_report(check, tmp_path):
    check(PROGRAM, TORCH_TRACE=str(tmp_path), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    (log,) = tmp_path.glob("*.log")
    entries = []
    for line in log.read_text().splitlines():
        _, brace, rest = line.partition("] {")
        if brace:
            entries.append(json.loads("{" + rest))
    kinds = {key for entry in entries for key in entry}
    assert {"dynamo_output_graph", "aot_forward_graph", "inductor_output_code"} & kinds >= {
        "dynamo_output_graph",
        "inductor_output_code",
    }
    assert "device(type='loom', index=0)" in log.read_text() or "loom:0" in log.read_text()
    tlparse = shutil.which("tlparse", path=str(Path(sys.executable).parent))
    if tlparse is None:
        pytest.skip("the report is written by tlparse")
    report = tmp_path / "report"
    subprocess.run([tlparse, str(log), "-o", str(report), "--no-browser"], check=True, timeout=100)
    pages = "".join(p.read_text() for p in report.rglob("*inductor_output_code*"))
    assert "loom" in pages
    assert (report / "index.html").exists()


def test_an_explanation_counts_graphs_and_says_why_they_end():
    torch._dynamo.reset()

    def function(x):
        y = x.sin()
        if y.sum().item() > 0:
            y = y + 1
        return y * 2

    explanation = torch._dynamo.explain(function)(torch.ones(4, device="loom"))
    assert explanation.graph_count == 2
    assert explanation.graph_break_count == 1
    assert "item" in str(explanation.break_reasons[0].reason)
    assert "test_compile_debugging.py" in str(explanation)


FAILING = """
    import torch
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    function = torch.compile(lambda x: torch.relu(x.sin()).cos(), dynamic=True)  # so it is C++
    function(torch.randn(20, device="loom"))
"""


def test_a_failure_is_written_for_the_minifier_and_reproduced(run, tmp_path):
    variables = {
        "TORCHDYNAMO_REPRO_AFTER": "aot",
        "TORCHDYNAMO_REPRO_LEVEL": "2",
        "TORCH_COMPILE_DEBUG_DIR": str(tmp_path),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
    }
    assert run(FAILING, **variables).code != 0
    (launcher,) = tmp_path.rglob("minifier_launcher.py")
    text = launcher.read_text()
    assert "device(type='loom', index=0)" in text
    assert "torch.ops.aten.relu" in text
    again = run_file(launcher, "run")
    assert again.returncode != 0
    assert "C++ compile error" in again.stderr + again.stdout
