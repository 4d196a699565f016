# SPDX-License-Identifier: BSD-3-Clause
"""The demo: the same training on several devices, side by side, with a table and a plot."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch.nn import functional as F  # noqa: N812

from . import __version__, loom
from ._demo_plot import bars, curves, save_picture
from ._demo_tasks import Task, digits_task, text_task
from ._doctor import BUSY_SHARE
from ._machine import Machine

# Devices sum in different orders, and training amplifies the difference: the first losses must be
# the same to rounding, the last ones about the same.
_EARLY_STEPS = 5
_EARLY_TOLERANCE = 2e-3
_LOSS_TOLERANCE = 0.05
_ACCURACY_TOLERANCE = 0.02


@dataclass(frozen=True)
class Result:
    """What came out of one training run.

    Attributes:
        loss (float): on the test set.
        accuracy (float): on the test set, from 0 to 1.
        early (list): training losses of the first steps.
        curve (list): steps, and the training loss there, now and then.
        seconds (float): of the training, without the test.
        peak_bytes (int): most bytes in live tensors; 0 where the device does not say.
        fallbacks (dict): how often which operator fell back.
    """

    loss: float
    accuracy: float
    early: list[float]
    curve: list[tuple[int, float]]
    seconds: float
    peak_bytes: int
    fallbacks: dict[str, int]

    def agrees_with(self, other: "Result") -> bool:
        """Return whether two devices learned the same."""
        early = all(
            abs(mine - theirs) <= _EARLY_TOLERANCE * max(1.0, abs(theirs))
            for mine, theirs in zip(self.early, other.early, strict=True)
        )
        late = abs(self.loss - other.loss) <= _LOSS_TOLERANCE * max(0.2, abs(other.loss))
        return early and late and abs(self.accuracy - other.accuracy) <= _ACCURACY_TOLERANCE


def train(
    task: Task, device: str, seed: int, steps: int, on_step: Callable[[int, float], None]
) -> Result:
    """Train on one device. Calls ``on_step(step, loss)`` now and then, not at every step.

    Reading a loss waits for the device, so it is done rarely: in between the host runs ahead.
    """
    torch.manual_seed(seed)
    model = task.model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate)
    is_loom = torch.device(device).type == "loom"
    if is_loom:
        loom.reset_fallbacks()
        loom.reset_peak_memory_stats(device)
    losses: list[torch.Tensor] = []
    curve: list[tuple[int, float]] = []
    start = time.perf_counter()
    for step, (inputs, targets) in enumerate(task.train(steps), start=1):
        loss = F.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
        if step % max(1, steps // 20) == 0 or step == steps:
            curve.append((step, loss.item()))
            on_step(*curve[-1])
    seconds = time.perf_counter() - start
    fallbacks = {name: row.count for name, row in loom.fallbacks().items()} if is_loom else {}
    early = [float(value) for value in losses[:_EARLY_STEPS]]
    return Result(
        *evaluate(task, model, device),
        early=early,
        curve=[(step, value) for step, value in enumerate(early, start=1) if step < curve[0][0]]
        + curve,
        seconds=seconds,
        peak_bytes=loom.max_memory_allocated(device) if is_loom else 0,
        fallbacks=fallbacks,
    )


@torch.no_grad()
def evaluate(task: Task, model: torch.nn.Module, device: str) -> tuple[float, float]:
    """Return loss and accuracy on the test set."""
    model.eval()
    loss = correct = total = 0.0
    for inputs, targets in task.test():
        outputs, targets = model(inputs.to(device)), targets.to(device)
        loss += F.cross_entropy(outputs, targets, reduction="sum").item()
        correct += (outputs.argmax(1) == targets).sum().item()
        total += targets.numel()
    return loss / total, correct / total


def _train_with_bar(console: Console, task: Task, device: str, seed: int, steps: int) -> Result:
    title = f"{task.name} on {device}"
    if not console.is_terminal:
        print(f"{title}: {steps} steps", flush=True)

        def report(step: int, loss: float) -> None:
            if step % max(1, steps // 4) < max(1, steps // 20):
                print(f"  step {step}: loss {loss:.4f}", flush=True)

        return train(task, device, seed, steps, report)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(title, total=steps, loss=float("nan"))

        def advance(step: int, loss: float) -> None:
            progress.update(bar, completed=step, loss=loss)

        return train(task, device, seed, steps, advance)


def _fallback_text(result: Result) -> str:
    if not result.fallbacks:
        return "none"
    shown = list(result.fallbacks.items())[:8]
    more = len(result.fallbacks) - len(shown)
    text = ", ".join(f"{name.removeprefix('aten::')} {count}" for name, count in shown)
    return text + (f" and {more} more" if more else "")


def _add_rows(table: Table, task: Task, results: dict[str, Result]) -> bool:
    base = next(iter(results.values()))
    all_agree = True
    for number, (device, result) in enumerate(results.items()):
        agrees = result.agrees_with(base)
        all_agree = all_agree and agrees
        peak = f"{result.peak_bytes / 2**20:.0f} MiB" if result.peak_bytes else "-"
        table.add_row(
            task.name if number == 0 else "",
            device,
            f"{result.loss:.4f}",
            f"{result.accuracy:.1%}",
            "" if number == 0 else ("yes" if agrees else "NO"),
            f"{result.seconds:.1f}",
            "" if number == 0 else f"{base.seconds / result.seconds:.2f}x",
            peak,
            _fallback_text(result) if result.peak_bytes else "-",
        )
    return all_agree


def _plot(results: dict[str, dict[str, Result]], picture: Path) -> None:
    losses = {
        task: {device: result.curve for device, result in by_device.items()}
        for task, by_device in results.items()
    }
    seconds = {
        task: {device: result.seconds for device, result in by_device.items()}
        for task, by_device in results.items()
    }
    for task in results:
        print()
        print(curves(f"{task}: training loss", losses[task]))
        print(bars("time", seconds[task]))
    print()
    if save_picture(picture, losses, seconds):
        print(f"The same as a picture: {picture.absolute()}")
    else:
        print("With matplotlib (pip install matplotlib) the demo saves this as a picture, too.")


_NEXT = """
What to try next:
  your own model              import torch; model.to("loom"), and tensors with device="loom"
  python -m torch_loom        what loom runs on here, and a self-test
  python -m torch_loom doctor what slows it down here, and what to do about it
  torch.compile(model)        compiles for loom, too
  torch.loom.fallbacks()      which operators of your program waited, and where"""


def run(
    devices: Sequence[str],
    seed: int,
    steps: int | None,
    quick: bool,
    picture: Path = Path("loom-demo.svg"),
) -> int:
    """Run the demo; print its table, a plot, and what to try next.

    Returns:
        int: 0 when all devices learned the same as the first, else 1.
    """
    cores = loom.get_num_threads()
    print(
        f"torch-loom {__version__}, torch {torch.__version__}: two models on {', '.join(devices)}; "
        f"cpu has {torch.get_num_threads()} threads, loom {cores} cores",
        flush=True,
    )
    machine = Machine()
    busy, processors = machine.load(), len(machine.online_cpus())
    if busy > BUSY_SHARE * processors:
        print(f"Other programs keep {busy:.1f} of {processors} processors busy: times mean little.")
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title="The same training on each device")
    for column in ("model", "device", "test loss", "accuracy", "agree"):
        table.add_column(column)
    for column in ("seconds", "speed", "peak memory"):
        table.add_column(column, justify="right")
    table.add_column("fell back (times)")
    agree = True
    all_results = {}
    for task in (digits_task(seed, quick), text_task(seed, quick)):
        results = {
            device: _train_with_bar(console, task, device, seed, steps or task.steps)
            for device in devices
        }
        agree = _add_rows(table, task, results) and agree
        all_results[task.name] = results
    console.print(table)
    _plot(all_results, picture)
    print("The devices agree." if agree else "The devices do NOT agree.")
    print(_NEXT)
    return 0 if agree else 1
