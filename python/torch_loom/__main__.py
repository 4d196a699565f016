# SPDX-License-Identifier: BSD-3-Clause
"""Command line: ``python -m torch_loom [info | doctor | demo | env | run | top]``.

``info``, which runs without a word, and ``doctor`` work where loom cannot be loaded, and say why.
"""

import argparse
import os
import sys
from pathlib import Path

from . import _load_problem


def _info(_: argparse.Namespace) -> int:
    from ._report import print_report

    return print_report(_load_problem)


def _doctor(_: argparse.Namespace) -> int:
    from ._doctor import Severity, examine, report
    from ._report import situation

    findings = examine(situation(_load_problem))
    print(report(findings))
    return int(any(finding.severity is Severity.BREAKS for finding in findings))


def _env(_: argparse.Namespace) -> int:
    from . import _C

    rows = [
        (name, os.environ.get(name, ""), default, text)
        for name, default, text in _C._option_table()
    ]
    width = max(len(row[0]) for row in rows)
    for name, value, default, text in rows:
        state = f"{value} (default {default})" if value else f"{default} (default)"
        print(f"{name:<{width}}  {state}\n{'':<{width}}  {text}")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    try:
        from ._demo import run
    except ImportError as error:
        print(
            f"python -m torch_loom demo: {error}. The demo needs scikit-learn and rich: "
            "pip install 'torch-loom[demo]'",
            file=sys.stderr,
        )
        return 2
    return run(
        devices=arguments.device,
        seed=arguments.seed,
        steps=arguments.steps,
        quick=arguments.quick,
        picture=arguments.picture,
    )


def _run(arguments: argparse.Namespace) -> int:
    from ._run import run

    program = arguments.program if arguments.module is None else ["-m", *arguments.module]
    return run(program, as_cuda=arguments.as_cuda, devices=arguments.gpus)


def _top(arguments: argparse.Namespace) -> int:
    from ._top import run

    return run(arguments.interval, arguments.once)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m torch_loom", description=__doc__)
    parser.set_defaults(run=_info)
    commands = parser.add_subparsers(dest="command")
    info = commands.add_parser("info", help="versions, devices, options in force, and a self-test")
    info.set_defaults(run=_info)
    doctor = commands.add_parser("doctor", help="what slows or breaks loom here, and what to do")
    doctor.set_defaults(run=_doctor)
    env = commands.add_parser("env", help="list the LOOM_* environment variables")
    env.set_defaults(run=_env)
    demo = commands.add_parser("demo", help="train two models on cpu and on loom, and compare")
    demo.add_argument("--steps", type=int, help="optimiser steps of each model")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument(
        "--device",
        nargs="+",
        default=["cpu", "loom"],
        help="where to train; the first is what the others are compared with",
    )
    demo.add_argument("--quick", action="store_true", help="a few seconds instead of minutes")
    demo.add_argument(
        "--picture",
        type=Path,
        default=Path("loom-demo.svg"),
        help="where to save the plot if matplotlib is installed (.svg, .png, .pdf)",
    )
    demo.set_defaults(run=_demo)
    run = commands.add_parser(
        "run",
        help="run a program, as it is, on loom",
        usage="%(prog)s [--as-cuda] [--gpus N] (script.py | -m module) [argument ...]",
    )
    run.add_argument(
        "--as-cuda",
        action="store_true",
        help="the device is called cuda: for programs that are written for it",
    )
    run.add_argument("--gpus", type=int, metavar="N", help="split the cores into N devices")
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    run.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    run.set_defaults(run=_run)
    top = commands.add_parser("top", help="the processes that use loom, refreshed")
    top.add_argument("--interval", type=float, default=1.0, help="seconds between two tables")
    top.add_argument("--once", action="store_true", help="one table, and the end")
    top.set_defaults(run=_top)
    arguments = parser.parse_args(argv)
    if arguments.command == "top" and arguments.interval <= 0:
        parser.error(f"--interval: expected more than 0, got {arguments.interval:g}")
    if arguments.command == "run":
        _check_program(run, arguments)
    if arguments.command == "demo" and arguments.steps is not None and arguments.steps < 1:
        parser.error(f"--steps: expected at least 1, got {arguments.steps}")
    if _load_problem and arguments.run not in (_info, _doctor):
        parser.exit(2, f"torch-loom: {_load_problem}\n")
    code: int = arguments.run(arguments)
    return code


def _check_program(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if not (arguments.module or arguments.program):
        parser.error("expected a script, or -m and a module, got none")
    if arguments.gpus is not None and arguments.gpus < 1:
        parser.error(f"--gpus: expected at least 1, got {arguments.gpus}")


if __name__ == "__main__":
    sys.exit(main())
