# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose steps run on several streams, on the host, in several threads and in graphs.

A step says which stream it is for, and not what it waits for: `placed()` puts waits, events,
`record_stream()` and waits of the host where steps share memory, so that each program is free of
races, a shrunk one too. Whatever way it is run, it has to give the bits that it gives step by step.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from graph_programs import (
    VARIANTS,
    Argument as Argument,  # scripts have it from here
    Arguments,
    GraphProgram,
    apart,
)

from support.program_checks import different_bits, different_form
from support.programs import Step

STREAMS = 3
HOST = STREAMS
"""The number of the host, as a stream."""

SEED = 7
REFUSED = "a graph refuses what it does"


@dataclass(frozen=True)
class StreamStep(Step):
    """A step and where it runs.

    Attributes:
        writes: the names whose memory it writes; it reads that of `uses`.
        frees: the names that may be the last ones of their memory.
        stream: the number of its stream, or HOST.
        waits: whether the host waits for it.
        by_event: whether it waits for events and not for all of a stream.
        announces: whether it says by record_stream() what it uses of another stream's memory.
    """

    writes: tuple[str, ...] = ()
    frees: tuple[str, ...] = ()
    stream: int = 0
    waits: bool = False
    by_event: bool = False
    announces: bool = False

    def read(self) -> tuple[str, ...]:
        return () if self.code.startswith("del ") else self.uses


@dataclass(frozen=True)
class StreamProgram(GraphProgram):
    """Arguments and steps; what is compared is all that has a name at the end, and what is seen."""

    steps: tuple[StreamStep, ...] = ()

    def script(self) -> str:
        """A script that checks the program, in tests_py/fuzz."""
        lines = "".join(f"# {line}\n" for line in placed(self, STREAMS))
        return (
            "import sys; sys.path.insert(0, '..')\nimport torch, torch_loom\n"
            f"from stream_programs import *\n{lines}"
            f"program = {self!r}\nprint(failure(program))\n"
        )


@dataclass(frozen=True)
class CompiledStreamProgram(GraphProgram):
    """A function with steps on streams, which graph_programs.py compiles and compares."""

    steps: tuple[StreamStep, ...] = ()

    def source(self) -> str:
        body, stream = "", 0
        for line in placed(self, STREAMS):
            if line.startswith("torch.loom.set_stream"):
                stream = int(line[-3])
            else:
                inside = f"with stream(s[{stream}]):\n        " if stream else ""
                body += f"    {inside}{line}\n"
        body += "".join(f"    s[0].wait_stream(s[{n}])\n" for n in range(1, STREAMS))
        names = ", ".join(a.name for a in self.arguments)
        return f"def function({names}):\n{body}    return [{', '.join(self.returned())}]\n"

    def globals(self, device: str) -> dict[str, Any]:
        if device == "cpu":
            streams = [NoStream()] * STREAMS
            return {"torch": torch, "device": device, "s": streams, "stream": NoStream}
        streams = [torch.loom.current_stream(), *side_streams(STREAMS - 1)]
        return {"torch": torch, "device": device, "s": streams, "stream": torch.loom.stream}


class NoStream(contextlib.nullcontext):
    """A stream where there are none."""

    def wait_stream(self, other: NoStream) -> None:
        pass

    def record_event(self) -> None:
        pass

    def wait_event(self, event: None) -> None:
        pass


# --- steps that share memory are ordered -------------------------------------------------------


@dataclass
class Memory:
    """Who used a storage: the streams' numbers, and the positions of the steps on them.

    Attributes:
        home: the stream that it was allocated on.
        pinned: whether it is the host's and pinned.
        unannounced: uses on other streams that record_stream() did not tell.
    """

    home: int
    pinned: bool
    written: tuple[int, int] | None = None
    read: dict[int, int] = field(default_factory=dict)
    unannounced: dict[int, int] = field(default_factory=dict)


def is_host(name: str) -> bool:
    return name.startswith("h")


class Placement:
    """Adds step after step to the lines of a program; cpu says which memory they use."""

    def __init__(
        self, program: GraphProgram, streams: int, scope: dict[str, Any] | None = None
    ) -> None:
        self.streams = streams
        self.scope = scope_of(program, "cpu", 0, []) if scope is None else scope
        self.lines: list[list[str]] = []
        self.kept: list[Any] = []  # storages, so that none has the address of another one
        self.memory: dict[int, Memory] = {}
        self.changed: list[Memory] = []
        # Up to which position of each stream everything is before what a stream gets next.
        self.clocks = [[0] * (HOST + 1) for _ in range(HOST + 1)]
        self.at: dict[tuple[int, int], tuple[list[str], list[int]]] = {}
        self.current = 0
        self.lines.append([])
        self._count(0)
        self.arguments = {a.name: self._memory(a.name, 0) for a in program.arguments}
        for memory in self.arguments.values():
            memory.written = (0, 1)

    def _count(self, stream: int) -> int:
        self.clocks[stream][stream] += 1
        position = self.clocks[stream][stream]
        self.at[stream, position] = (self.lines[-1], list(self.clocks[stream]))
        return position

    def _memory(self, name: str, home: int) -> Memory:
        kept = self.scope[name].untyped_storage()
        self.kept.append(kept)
        if kept._cdata not in self.memory:
            host = is_host(name)
            pinned = host and kept.is_pinned()
            self.memory[kept._cdata] = Memory(HOST if host else home, pinned)
        return self.memory[kept._cdata]

    def _memories(self, names: Iterable[str], home: int) -> list[Memory]:
        return [self._memory(name, home) for name in names if torch.is_tensor(self.scope.get(name))]

    def _order(self, after: int, uses: Iterable[tuple[int, int]], by_event: bool) -> None:
        """Lets a stream, or the host, wait for what was used."""
        for stream, position in uses:
            if stream == after or self.clocks[after][stream] >= position:
                continue
            clock = self.clocks[stream]
            if by_event:
                made, clock = self.at[stream, position]
                event = f"e{stream}_{position}"
                record = f"{event} = s[{stream}].record_event()"
                if record not in made:
                    made.append(record)
                waits = (
                    f"{event}.synchronize()" if after == HOST else f"s[{after}].wait_event({event})"
                )
            elif after == HOST:
                waits = f"s[{stream}].synchronize()"
            else:
                waits = f"s[{after}].wait_stream(s[{stream}])"
            self.lines[-1].append(waits)
            self._learn(after, clock)

    def _learn(self, stream: int, clock: list[int]) -> None:
        self.clocks[stream] = [max(pair) for pair in zip(self.clocks[stream], clock, strict=True)]

    def add(self, step: StreamStep) -> None:
        stream = HOST if step.stream == HOST else step.stream % self.streams
        self.lines.append([])
        self._learn(stream, self.clocks[HOST])
        read = self._memories(step.read(), stream)
        written = self._memories(step.writes, stream)
        freed = self._memories(step.frees, stream)
        self.changed += [*written, *freed]
        for memory in read:
            # Of host memory that is not pinned, a copy reads the bytes when it is called.
            at_call = memory.home == HOST and not (memory.pinned and "non_blocking" in step.code)
            after = HOST if at_call else stream
            self._order(after, [memory.written] if memory.written else [], step.by_event)
        self._learn(stream, self.clocks[HOST])
        for memory in written:
            self._order(stream, memory.read.items(), step.by_event)
        for memory in freed:
            if memory.home != HOST:
                self._order(memory.home, memory.unannounced.items(), step.by_event)
        self._announce(step, stream)
        if stream not in (HOST, self.current):
            self.lines[-1].append(f"torch.loom.set_stream(s[{stream}])")
            self.current = stream
        self.lines[-1].append(step.code)
        known = len(self.memory)
        exec(step.code, self.scope)
        self._memories([step.result], stream)
        if stream == HOST or step.waits:
            return
        position = self._count(stream)
        for memory in read:
            # The host may change at once what a copy waited for, or has read.
            if memory.home != HOST or "non_blocking" in step.code:
                memory.read[stream] = position
        for memory in [*written, *list(self.memory.values())[known:]]:
            memory.written, memory.read = (stream, position), {}

    def all_lines(self) -> list[str]:
        return [line for lines in self.lines for line in lines]

    def _announce(self, step: StreamStep, stream: int) -> None:
        """Tells the memory of other streams, or remembers, that this one uses it."""
        if stream == HOST or step.waits:
            return
        for name in dict.fromkeys((*step.read(), *step.writes)):
            for memory in self._memories([name], stream):
                if memory.home in (stream, HOST):
                    continue
                # What a step lets go of itself nobody could wait for.
                if step.announces or name in step.frees:
                    self.lines[-1].append(f"{name}.record_stream(s[{stream}])")
                else:
                    memory.unannounced[stream] = self.clocks[stream][stream] + 1


def placement_of(program: GraphProgram, streams: int) -> Placement:
    """Raises: what cpu says of a step."""
    placement = Placement(program, streams)
    for step in program.steps:
        placement.add(step)
    return placement


def placed(program: GraphProgram, streams: int) -> list[str]:
    """The lines of the program on so many streams."""
    return placement_of(program, streams).all_lines()


# --- ways to run -------------------------------------------------------------------------------


def scope_of(program: GraphProgram, device: str, variant: int, seen: list[Any],
             shared: dict[str, Any] | None = None) -> dict[str, Any]:  # fmt: skip
    """What steps see; `shared`: arguments that are somebody else's, too."""

    def see(value: Any) -> None:
        seen.append(value.detach().to("cpu", copy=True) if torch.is_tensor(value) else value)

    def keep_busy() -> None:
        if device == "loom":
            x = torch.empty(320, 320, device=device)
            torch.mm(x, x)

    values, _ = Arguments(program, device).of_call(variant)
    names = [argument.name for argument in program.arguments]
    scope = {
        "torch": torch,
        "device": device,
        "see": see,
        "keep_busy": keep_busy,
        "g": torch.Generator(device).manual_seed(SEED),
        **dict(zip(names, values, strict=True)),
    }
    scope.update(shared or {})
    return scope


@dataclass
class Left:
    """What a run left: what it saw, and all tensors that have names, on the host."""

    seen: list[Any]
    named: dict[str, torch.Tensor]


def left(scope: dict[str, Any], seen: list[Any]) -> Left:
    torch.accelerator.synchronize()
    tensors = {name: value for name, value in scope.items() if torch.is_tensor(value)}
    return Left(seen, {name: value.detach().cpu() for name, value in tensors.items()})


def different(got: Left, wanted: Left) -> str:
    """The first difference of bits, in words."""
    if got.named.keys() != wanted.named.keys():
        return f"names {sorted(got.named)} instead of {sorted(wanted.named)}"
    for n, (one, other) in enumerate(zip(got.seen, wanted.seen, strict=True)):
        wrong = different_bits(one, other)
        if wrong:
            return f"sight {n}: {wrong}"
    for name, value in wanted.named.items():
        wrong = different_bits(got.named[name], value)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def step_by_step(program: StreamProgram, device: str, variant: int,
                 shared: dict[str, Any] | None = None) -> Left:  # fmt: skip
    """One stream, one thread, and nothing is queued when a step begins."""
    seen: list[Any] = []
    scope = scope_of(program, device, variant, seen, shared)
    for step in program.steps:
        exec(step.code, scope)
        if device != "cpu":
            torch.accelerator.synchronize()
    return left(scope, seen)


def compiled_lines(lines: list[str]) -> Any:
    return compile("\n".join(lines), "<program>", "exec")


def side_streams(count: int) -> list[Any]:
    return [torch.loom.Stream() for _ in range(count)]


def queued(program: StreamProgram, lines: list[str], streams: int) -> Left:
    """Queued behind work, on one stream or several."""
    seen: list[Any] = []
    main = torch.loom.current_stream()
    code = compiled_lines(lines)
    scope = scope_of(program, "loom", 0, seen)
    scope["s"] = [main, *side_streams(streams - 1)]
    scope["keep_busy"]()
    try:
        exec(code, scope)
    finally:
        torch.loom.set_stream(main)
    return left(scope, seen)


def read_only(placement: Placement) -> set[str]:
    """The arguments whose memory no step writes or lets go of."""
    changed = {id(memory) for memory in placement.changed}
    return {name for name, memory in placement.arguments.items() if id(memory) not in changed}


def in_threads(program: StreamProgram, placement: Placement) -> str:
    """In threads that have values and streams of their own, and read some arguments of all."""
    main = torch.loom.current_stream()
    first = scope_of(program, "loom", 0, [])
    shared = {name: first[name] for name in read_only(placement)}
    try:
        wanted = [step_by_step(program, "loom", n, shared) for n in range(VARIANTS)]
    except Exception:
        return ""  # not a program: values of several variants do not go together
    code = compiled_lines(placement.all_lines())
    start = threading.Barrier(VARIANTS)
    ends: list[Left | Exception | None] = [None] * VARIANTS

    def work(variant: int) -> None:
        seen: list[Any] = []
        streams = side_streams(STREAMS)
        streams[0].wait_stream(main)
        torch.loom.set_stream(streams[0])
        start.wait()
        try:
            scope = scope_of(program, "loom", variant, seen, shared)
            scope["s"] = streams
            exec(code, scope)
            ends[variant] = left(scope, seen)
        except Exception as error:
            ends[variant] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(VARIANTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for variant, end in enumerate(ends):
        same = isinstance(end, Left)
        wrong = different(end, wanted[variant]) if same else describe(end)
        if wrong:
            return f"thread {variant}: {wrong}"
    return ""


def capturable(program: StreamProgram) -> StreamProgram:
    """The program without what waits, or is the host's, and what needs that."""
    steps: list[StreamStep] = []
    names = {argument.name for argument in program.arguments}
    for step in program.steps:
        hosts = any(map(is_host, (step.result, *step.uses)))
        if not step.waits and not hosts and names.issuperset(step.uses):
            steps.append(step)
            names.add(step.result)
    return replace(program, steps=tuple(steps))


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All memory of its storage."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return whole.set_(tensor.untyped_storage())


def replayed(
    program: StreamProgram, lines: list[str], streams: int, wanted: Callable[[int], Left]
) -> str:
    """Captured once, replayed for each variant with nothing that waits between; `wanted`: what a
    variant gives step by step."""
    seen: list[Any] = []
    scope = scope_of(program, "loom", 0, seen)
    memory = {a.name: flat(scope[a.name]) for a in program.arguments}
    variants = [scope_of(program, "loom", v, seen) for v in range(VARIANTS)]
    side = side_streams(streams - 1)
    forks = [f"s[{n}].wait_stream(s[0])" for n in range(1, streams)]
    joins = [
        "torch.loom.set_stream(s[0])",
        *(f"s[0].wait_stream(s[{n}])" for n in range(1, streams)),
    ]
    code = compiled_lines([*forks, *lines, *joins])
    graph = torch.loom.Graph()
    main = torch.loom.current_stream()
    try:
        with torch.loom.graph(graph):
            scope["s"] = [torch.loom.current_stream(), *side]
            try:
                exec(code, scope)
            finally:
                torch.loom.set_stream(scope["s"][0])
    except RuntimeError as error:
        torch.loom.set_stream(main)
        if "cannot be captured in a graph" in str(error):
            return REFUSED
        raise
    ends = []
    for values in variants:
        for name, to in memory.items():
            to.copy_(flat(values[name]))
        scope["g"].manual_seed(SEED)
        graph.replay()
        named = {name: value for name, value in scope.items() if torch.is_tensor(value)}
        ends.append({name: value.clone() for name, value in named.items()})
    for variant, end in enumerate(ends):
        wrong = different(left(end, []), wanted(variant))
        if wrong:
            return f"replay {variant}: {wrong}"
    return ""


def as_on_cpu(program: StreamProgram, got: Left) -> str:
    """What has one right result is what cpu gives."""
    wanted = step_by_step(program, "cpu", 0)
    if got.named.keys() != wanted.named.keys():
        return f"names {sorted(got.named)}, on cpu {sorted(wanted.named)}"
    for name, value in wanted.named.items():
        wrong = different_form(got.named[name], value)
        wrong = wrong or (apart(got.named[name], value, 0.0, 1.0) if name in program.exact else "")
        if wrong:
            return f"{name}: {wrong}"
    return ""


def describe(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"


def failures(program: StreamProgram) -> dict[str, str]:
    """Of each way to run the program: what is wrong, nothing, or that it was refused."""
    inner = capturable(program)
    try:
        one, several = placement_of(program, 1), placement_of(program, STREAMS)
        lines = {streams: placed(inner, streams) for streams in (1, STREAMS)}
    except Exception:
        return {}  # not a program: steps were dropped that others need
    try:
        wanted = step_by_step(program, "loom", 0)
    except Exception as error:
        return {"step by step": describe(error)}
    ways: dict[str, Callable[[], str]] = {
        "step by step": lambda: as_on_cpu(program, wanted),
        "one stream": lambda: different(queued(program, one.all_lines(), 1), wanted),
        "streams": lambda: different(queued(program, several.all_lines(), STREAMS), wanted),
        "threads": lambda: in_threads(program, several),
    }
    if inner.steps:
        of_variant = functools.cache(lambda variant: step_by_step(inner, "loom", variant))
        ways["replayed"] = lambda: replayed(inner, lines[1], 1, of_variant)
        ways["streams, replayed"] = lambda: replayed(inner, lines[STREAMS], STREAMS, of_variant)
    found: dict[str, str] = {}
    for way, differs in ways.items():
        try:
            found[way] = differs()
        except Exception as error:
            found[way] = describe(error)
            # What is queued still uses memory that nobody names any more.
            with contextlib.suppress(Exception):
                torch.accelerator.synchronize()
    return found


def failure(program: StreamProgram) -> str:
    found = failures(program).items()
    return next((f"{way}: {wrong}" for way, wrong in found if wrong and wrong != REFUSED), "")
