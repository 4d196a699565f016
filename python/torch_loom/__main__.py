# SPDX-License-Identifier: BSD-3-Clause
"""Command line: ``python -m torch_loom demo | env | info``."""

import argparse
import os
import sys

import torch

from . import _C, __version__


def _info(_: argparse.Namespace) -> int:
    from . import loom

    print(f"torch-loom {__version__}, torch {torch.__version__}")
    for index in range(loom.device_count()):
        properties = loom.get_device_properties(index)
        node = "" if properties.numa_node < 0 else f", NUMA node {properties.numa_node}"
        print(
            f"loom:{index}  {properties.name}\n"
            f"  cores   {properties.core_count} (processors {properties.cpus}{node}), "
            f"{properties.simd}\n"
            f"  caches  {properties.l1_cache >> 10} KiB, {properties.l2_cache >> 10} KiB, "
            f"{properties.l3_cache >> 10} KiB\n"
            f"  memory  {properties.total_memory / 2**30:.1f} GiB"
        )
    return 0


def _env(_: argparse.Namespace) -> int:
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
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m torch_loom", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="list the devices")
    info.set_defaults(run=_info)
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
    demo.set_defaults(run=_demo)
    arguments = parser.parse_args(argv)
    if arguments.command == "demo" and arguments.steps is not None and arguments.steps < 1:
        parser.error(f"--steps: expected at least 1, got {arguments.steps}")
    code: int = arguments.run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
