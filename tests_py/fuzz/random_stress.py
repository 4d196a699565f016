# SPDX-License-Identifier: BSD-3-Clause
"""Random stress programs: those of streams, with what stress_vocabulary.py adds."""

from __future__ import annotations

import re
from typing import Any

import random_streams
import stress_vocabulary as vocabulary
from graph_programs import GraphProgram
from graph_vocabulary import codes
from random_streams import OF_GRAPHS, OWN, made_by
from stream_programs import HOST, STREAMS, StreamStep
from stress_programs import SPOILT, StressProgram, on_cpu

TABLES = {
    **random_streams.TABLES,
    "failures": (codes(vocabulary.FAILURES), 4),
    "failure writes": (codes(vocabulary.FAILURE_WRITES), 2),
    "healing": (codes(vocabulary.HEALING), 4),
    "sent": (codes(vocabulary.SENT), 3),
    "fetched": (codes(vocabulary.FETCHED), 2),
    "fetched writes": (codes(vocabulary.FETCHED_WRITES), 1),
    "there": ([""], 8),
    "collectives": (codes(vocabulary.COLLECTIVES), 4),
    "sums": (codes(vocabulary.SUMS), 3),
    "pressure": (codes(vocabulary.PRESSURE), 2),
    "disturbances": (codes(vocabulary.DISTURBANCES), 6),
    "forks": (codes(vocabulary.FORKS), 0.6),
}
THERE = [*OF_GRAPHS, "out", "foreach", "foreach writes", "failures", "failure writes", "healing"]
THERE += ["looks", "deletions"]
"""Tables of steps that the other device runs, too."""


class Generator(random_streams.Generator):
    """Makes one program. Kinds of events are in it or not, so that each meets few others."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lanes = self.random.choices([1, 2, 3], weights=[2, 2, 3])[0]
        self.tables = dict(TABLES)
        self.processes = self.lanes == 2 and self.chance(0.3)
        for names, probability in (
            (("failures", "failure writes", "healing"), 0.6),
            (("sent", "fetched", "fetched writes", "there"), 0.5),
            (("collectives", "sums"), 0.4),
            (("pressure", "disturbances"), 0.7),
            (("forks",), 0.5),
        ):
            if not self.chance(probability):
                for name in names:
                    del self.tables[name]
        self.others: list[str] = []  # the names of tensors on the other device
        self.is_there = False
        self.spoilt: set[int] = set()  # the memory of what may have failed, in the first variant

    def scope(self, program: GraphProgram, call: int) -> dict[str, Any]:
        return on_cpu(self.program(), call, SPOILT[1])

    def tensors(self) -> list[str]:
        return [*self.names, *self.hosts, *self.others]

    def add_of(self, table: str, template: str) -> bool:
        if table == "there":
            return self.add_there()
        if table not in ADDED:
            return super().add_of(table, template)
        if "{q}" in template and not self.others:
            return False
        code, used, _ = self.fill(template)
        return ADDED[table](self, code, tuple(dict.fromkeys(used)))

    def add_there(self) -> bool:
        if not self.others:
            return False
        self.names, self.others, self.is_there = self.others, self.names, True
        table = self.random.choices(THERE, [TABLES[name][1] for name in THERE])[0]
        try:
            return self.add_of(table, self.pick(TABLES[table][0]))
        finally:
            self.names, self.others, self.is_there = self.others, self.names, False

    def fill(self, template: str, **more: str) -> tuple[str, list[str], str]:
        q = self.pick(self.others) if self.others else ""
        k = str(self.random.randrange(STREAMS))
        code, used, index = super().fill(template, q=q, k=k, **more)
        return code, [*used, q] if "{q}" in template else used, index

    def emit(
        self,
        code: str,
        result: str,
        uses: tuple[str, ...],
        exact: bool,
        others: tuple[str, ...] = (),
        **more: Any,
    ) -> bool:
        if self.is_there:
            code = re.sub(r"(?<![.\w])device\b(?!=)", "other", code)
            code = re.sub(r"\bbad\b", "bad_there", code)
            if result == f"v{len(self.steps)}":
                result = f"d{len(self.steps)}"
                code = f"{result}{code[len(result) :]}"
        if not super().emit(code, result, uses, exact, others, **more):
            return False
        step = self.steps[-1]
        assert isinstance(step, StreamStep)
        if "spoil(" in code or any(map(self.is_spoilt, step.read())):
            names = {result, *step.writes} - {""}
            self.spoilt |= {self.tensor(name).untyped_storage()._cdata for name in names}
        return True

    def is_spoilt(self, name: str) -> bool:
        value = self.tensor(name)
        return torch_storage(value) in self.spoilt

    # Each adds a step of a table.

    def failing(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.new(code, uses)

    def failing_write(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.write(code, uses)

    def sent(self, code: str, uses: tuple[str, ...]) -> bool:
        name = f"d{len(self.steps)}"
        if not self.emit(f"{name} = {code}", name, uses, self.are_exact(uses)):
            return False
        self.names.remove(name)
        self.others.append(name)
        return True

    def fetched_write(self, code: str, uses: tuple[str, ...]) -> bool:
        return self.write(code, uses)

    def collective(self, code: str, uses: tuple[str, ...]) -> bool:
        return not any(map(self.is_spoilt, uses)) and self.new(code, uses)

    def sum(self, code: str, uses: tuple[str, ...]) -> bool:
        name = f"v{len(self.steps)}"
        if any(map(self.is_spoilt, uses)):
            return False
        return self.emit(f"{name} = {code}", name, uses, False)

    def disturb(self, code: str, uses: tuple[str, ...]) -> bool:
        if any(self.tensor(name).numel() == 0 for name in uses):  # a child may copy nothing
            return False
        return self.emit(code, "", uses, True, stream=HOST, writes=())

    def look(self, code: str, uses: tuple[str, ...]) -> bool:
        # Sums may be rounded, and a zero has one sign of several.
        exact = self.are_exact(uses) and not re.search("sum|unique", code)
        return self.emit(code, "", uses, exact, waits=True)

    # --- the program -----------------------------------------------------------------------------

    def program(self, results: tuple[str, ...] = ()) -> StressProgram:
        return StressProgram(
            self.seed,
            tuple(self.steps),
            arguments=tuple(self.arguments),
            exact=frozenset(filter(self.is_exact, results)),
            sizes=self.sizes,
            lanes=self.lanes,
            processes=self.processes,
        )


def torch_storage(value: Any) -> int:
    return int(value.untyped_storage()._cdata)


ADDED = {
    "looks": Generator.look,
    "failures": Generator.failing,
    "failure writes": Generator.failing_write,
    "healing": Generator.write,
    "sent": Generator.sent,
    "fetched": Generator.new,
    "fetched writes": Generator.fetched_write,
    "collectives": Generator.collective,
    "sums": Generator.sum,
    "pressure": Generator.new,
    "disturbances": Generator.disturb,
    "forks": Generator.disturb,
}
"""Who adds a step of a table that programs for streams have not, or add otherwise."""

assert not set(ADDED) - {"looks"} & set(OWN)


def random_stress_program(seed: int) -> StressProgram:
    """The program of a seed: always the same one."""
    program: StressProgram = made_by(Generator(seed))
    return program
