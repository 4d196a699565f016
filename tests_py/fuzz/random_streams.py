# SPDX-License-Identifier: BSD-3-Clause
"""Random programs for streams, the host, threads and graphs: each step is run on cpu as it is made,
with the values of each variant, and kept if it is valid there."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any

import random_graphs
import stream_vocabulary as vocabulary
from graph_programs import Argument, GraphProgram
from graph_vocabulary import codes
from random_graphs import STEPS
from stream_programs import (
    HOST,
    STREAMS,
    CompiledStreamProgram,
    StreamProgram,
    StreamStep,
    scope_of,
)

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33]
FEW_ELEMENTS, USUAL_ELEMENTS, MANY_ELEMENTS = 300, 3000, 70_000
OF_GRAPHS = "pointwise rough views moves indexed reductions writes products casts".split()
TABLES = {
    **{name: STEPS[name] for name in OF_GRAPHS},
    "networks": (codes(vocabulary.NETWORKS), 4),
    "random": (codes(vocabulary.RANDOM), 2),
    "random writes": (codes(vocabulary.RANDOM_WRITES), 2),
    "foreach": (codes(vocabulary.FOREACH), 1),
    "foreach writes": (codes(vocabulary.FOREACH_WRITES), 2),
    "out": (codes(vocabulary.OUT), 3),
    "new out": (codes(vocabulary.NEW_OUT), 1),
    "replaced": (codes(vocabulary.REPLACED), 3),
    "looks": (codes(vocabulary.LOOKS), 1.5),
    "waited copies": (codes(vocabulary.WAITED_COPIES), 1),
    "copies": (codes(vocabulary.COPIES), 2),
    "host": (codes(vocabulary.HOST), 2),
    "host writes": (codes(vocabulary.HOST_WRITES), 2),
    "uploads": (codes(vocabulary.UPLOADS), 3),
    "upload writes": (codes(vocabulary.UPLOAD_WRITES), 2),
    "download writes": (codes(vocabulary.DOWNLOAD_WRITES), 2),
    "deletions": (["del {x}"], 6),
    "deletions on the host": (["del {h}"], 1),
    "busy": (["keep_busy()"], 1),
}

COMPILED = [*OF_GRAPHS, *"networks, foreach, foreach writes, out, new out, deletions".split(", ")]


class Generator(random_graphs.Generator):
    """Makes one program."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.mode, self.gradient = "default", False
        self.tables = TABLES
        self.elements = self.random.choices(
            [FEW_ELEMENTS, USUAL_ELEMENTS, MANY_ELEMENTS], weights=[10, 4, 1]
        )[0]
        small = self.elements == FEW_ELEMENTS
        sizes = {name: self.pick(SIZES if small else random_graphs.SIZES) for name in "ABCD"}
        self.sizes = (sizes,) * len(self.sizes)
        self.hosts: list[str] = []  # the names of tensors on the host

    def make_argument(self) -> None:
        name = f"a{len(self.arguments)}"
        if self.names and self.chance(0.2):
            view = self.pick(["[1:]", ".t()", "[..., 0]", ".view(-1)", ""])
            self.add_tensor(Argument(name, f"{self.pick(self.names)}{view}"))
        else:
            self.add_tensor(Argument(name, self.tensor_code(self.pick(self.dtypes))))

    def scope(self, program: GraphProgram, call: int) -> dict[str, Any]:
        return scope_of(program, "cpu", call, [])

    def add_of(self, table: str, template: str) -> bool:
        if table not in OWN:
            return super().add_of(table, template)
        if "{h}" in template and not self.hosts:
            return False
        code, used, _ = self.fill(template)
        return OWN[table](self, code, tuple(dict.fromkeys(used)))

    def fill(self, template: str, **more: str) -> tuple[str, list[str], str]:
        h = self.pick(self.hosts) if self.hosts else ""
        shape = tuple(self.tensor(self.some_name()).shape)
        code, used, index = super().fill(template, h=h, s=str(shape), **more)
        return code, [*used, h] if "{h}" in template else used, index

    # Each adds a step of a table.

    def new(self, code: str, uses: tuple[str, ...]) -> bool:
        name = f"v{len(self.steps)}"
        return self.emit(f"{name} = {code}", name, uses, self.are_exact(uses))

    def new_on_host(self, code: str, uses: tuple[str, ...], **more: Any) -> bool:
        name = f"h{len(self.steps)}"
        if not self.emit(f"{name} = {code}", name, uses, self.are_exact(uses), **more):
            return False
        self.names.remove(name)
        self.hosts.append(name)
        return True

    def waited_copy(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.new_on_host(code, uses, waits=True)

    def on_host(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.new_on_host(code, uses, stream=HOST)

    def write(self, code: str, uses: tuple[str, ...]) -> bool:
        if self.is_empty(uses[0]):
            return False
        return self.may_write([*uses]) and self.emit(code, uses[0], uses, self.are_exact(uses))

    def write_on_host(self, code: str, uses: tuple[str, ...], **more: Any) -> bool:
        host = uses[-1]
        others = [name for name in uses if name != host]
        if not self.may_write([host, *others]):
            return False
        self.names.append(host)  # for as long as it is written
        done = self.emit(code, host, uses, self.are_exact(uses), writes=(host,), **more)
        self.names.remove(host)
        return done

    def write_of_host(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.write_on_host(code, uses, stream=HOST)

    def foreach_write(self, code: str, uses: tuple[str, ...]) -> bool:
        written, read = uses[:2], uses[2:]
        if f"[{', '.join(written)}]" not in code or len(written) < 2:
            return False
        if not all(self.may_write([name, *written[:i], *read]) for i, name in enumerate(written)):
            return False
        return self.emit(
            code, written[0], uses, self.are_exact(uses), others=written[1:], writes=written
        )

    def replace(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.emit(code, uses[0], uses, self.are_exact(uses), writes=(), frees=uses[:1])

    def look(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.emit(code, "", uses, True, waits=True)

    def delete(self, code: str, uses: tuple[str, ...]) -> bool:
        name = uses[0]
        if name in self.names and len(self.names) < 3:
            return False
        frees = uses if name in self.names else ()
        (self.names if name in self.names else self.hosts).remove(name)
        return self.emit(code, "", uses, True, frees=frees, stream=HOST)

    def busy(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.emit(code, "", (), True)

    def are_exact(self, names: tuple[str, ...]) -> bool:
        return all(map(self.is_exact, names))

    def tensors(self) -> list[str]:
        return [*self.names, *self.hosts]

    def emit(
        self,
        code: str,
        result: str,
        uses: tuple[str, ...],
        exact: bool,
        others: tuple[str, ...] = (),
        **more: Any,
    ) -> bool:
        more.setdefault("writes", (result,) if result in self.names else ())
        more.setdefault("stream", self.random.randrange(STREAMS))
        more.setdefault("by_event", self.chance(0.5))
        more.setdefault("announces", self.chance(0.5))
        if not super().emit(code, result, uses, exact, others):
            return False
        self.steps[-1] = StreamStep(code, result, uses, exact, **more)
        return True

    # --- the program ---------------------------------------------------------------------------

    def program(self, results: tuple[str, ...] = ()) -> StreamProgram | CompiledStreamProgram:
        return StreamProgram(
            self.seed,
            tuple(self.steps),
            arguments=tuple(self.arguments),
            exact=frozenset(filter(self.is_exact, results)),
            sizes=self.sizes,
        )

    def make(self) -> StreamProgram | CompiledStreamProgram:
        while not self.names:
            self.make_argument()
        for _ in range(self.random.randint(1, 3)):
            self.make_argument()
        self.restart()
        wanted = self.random.randint(4, 24)
        for _ in range(10 * wanted):
            if len(self.steps) >= wanted:
                break
            self.add_step()
        return self.program((*self.tensors(),))


class CompiledGenerator(Generator):
    """Makes a function to compile, of what graphs have and what compilers know of the rest."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.mode = self.pick(["default", "reduce-overhead"])
        self.tables = {name: TABLES[name] for name in COMPILED}

    def scope(self, program: GraphProgram, call: int) -> dict[str, Any]:
        scope = super().scope(program, call)
        if not self.scopes:
            names = [argument.name for argument in program.arguments]
            self.passed = {scope[name].untyped_storage()._cdata for name in names}
        return scope

    def may_write(self, used: list[str]) -> bool:
        """PyTorch applies writes of arguments when the graph has run, behind events and waits."""
        first = self.scopes[0][used[0]].untyped_storage()._cdata
        return first not in self.passed and super().may_write(used)

    def emit(self, code: str, result: str, uses: tuple[str, ...], exact: bool, **more: Any) -> bool:
        return super().emit(code, result, uses, exact, announces=False, **more)

    def program(self, results: tuple[str, ...] = ()) -> CompiledStreamProgram:
        plain = random_graphs.Generator.program(self, results)
        return CompiledStreamProgram(**{f.name: getattr(plain, f.name) for f in fields(plain)})


OWN = {
    "foreach": Generator.new,
    "foreach writes": Generator.foreach_write,
    "out": Generator.write,
    "new out": Generator.new,
    "replaced": Generator.replace,
    "looks": Generator.look,
    "waited copies": Generator.waited_copy,
    "copies": Generator.new_on_host,
    "host": Generator.on_host,
    "host writes": Generator.write_of_host,
    "uploads": Generator.new,
    "upload writes": Generator.write,
    "download writes": Generator.write_on_host,
    "deletions": Generator.delete,
    "deletions on the host": Generator.delete,
    "busy": Generator.busy,
}
"""Who adds a step of a table that graphs have not."""


def random_stream_program(seed: int) -> StreamProgram:
    """The program of a seed: always the same one."""
    return made_by(Generator(seed))


def random_stream_graph(seed: int) -> CompiledStreamProgram:
    """The function of a seed: always the same one."""
    return made_by(CompiledGenerator(seed))


def made_by(generator: Generator) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a result that would be resized is not valid
        return generator.make()
