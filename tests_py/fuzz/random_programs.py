# SPDX-License-Identifier: BSD-3-Clause
"""Random programs of pointwise operators, reductions, views and writes.

:func:`random_program` makes one from a seed: it runs each step on cpu as it goes, and keeps those
that are valid there.
"""

import random
from collections.abc import Callable

from program_vocabulary import DTYPES, REDUCTIONS, Vocabulary

from support.programs import RandomProgram, may_write

# How many elements the tensors of a program have: some programs are cut into blocks.
USUAL_ELEMENTS, MANY_ELEMENTS = 3000, 80_000


class Generator(Vocabulary):
    """Makes one program, step by step: each method adds a step if it finds a valid one."""

    def make_input(self) -> None:
        shape = list(self.shape)
        kind = self.random.choices(
            ["full", "broadcast", "permuted", "sliced", "expanded", "last", "scalar"],
            weights=[8, 3, 2, 2, 1, 1, 1] if not self.dense else [8, 2, 0, 0, 0, 0, 1],
        )[0]
        view = ""
        if kind == "broadcast" and shape:
            shape = [1 if self.chance(0.5) else size for size in shape]
            shape = shape[self.pick([0, 0, self.random.randrange(len(shape))]) :]
        elif kind == "permuted" and len(shape) > 1:
            order = self.random.sample(range(len(shape)), len(shape))
            shape = [shape[d] for d in order]
            view = f".permute({[order.index(d) for d in range(len(order))]})"
        elif kind == "sliced" and shape:
            starts = [self.random.randrange(3) for _ in shape]
            steps = [self.pick([1, 1, 2, 3]) for _ in shape]
            old = shape
            shape = [a + n * s for a, n, s in zip(starts, shape, steps, strict=True)]
            parts = [f"{a}:{a + n * s}:{s}" for a, n, s in zip(starts, old, steps, strict=True)]
            view = f"[{', '.join(parts)}]"
        elif kind == "expanded" and shape:
            full = tuple(shape)
            shape = [1 if self.chance(0.5) else size for size in shape]
            view = f".expand({full})"
        elif kind == "last" and len(shape) == 4:
            view = ".to(memory_format=torch.channels_last)"
        dtype = self.pick(self.dtypes) if self.chance(0.8) else self.pick(DTYPES)
        maker, size = ("on_cpu", ()) if kind == "scalar" else ("make", tuple(shape))
        name = self.new_name()
        seed = self.random.randrange(1000)
        self.emit(f"{name} = {maker}({size}, {dtype}, {seed}, {self.special}){view}", name)
        if kind == "scalar":
            self.names.remove(name)
            self.numbers.append(name)

    def operator_step(self) -> bool:
        name = self.some_name()
        function, arguments, used = self.call(name)
        target = name if self.chance(0.15) else self.new_name()  # a name that is taken is dropped
        return self.emit(
            f"{target} = torch.{function}({arguments})",
            target,
            used,
            comparable=self.has_one_result(function, used, arguments) and target not in used,
            scale=self.scale_of(arguments),
        )

    def chain_step(self) -> bool:
        """Operators whose results have no names."""
        name = self.some_name()
        function, arguments, used = self.call(name)
        code = f"torch.{function}({arguments})"
        for _ in range(self.random.randrange(1, 5)):
            if self.chance(0.5):
                method = self.pick("exp tanh abs neg relu sigmoid sqrt floor square".split())
                code += f".{method}()"
            else:
                number, more = self.value(name)
                method = self.pick("add mul sub div add_ mul_ sub_ eq lt maximum".split())
                if method == "maximum" and not more:
                    continue
                code += f".{method}({number})"
                used += more
        target = self.new_name()
        return self.emit(f"{target} = {code}", target, used, comparable=False)

    def write_step(self) -> bool:
        """An operator that writes into an existing tensor."""
        target = self.some_name()
        to = self.tensor(target)
        form = self.random.choices(
            ["method", "out", "copy_", "fill", "masked_fill_", "item"], weights=[6, 3, 2, 1, 2, 2]
        )[0]
        if form in ("method", "out"):
            name = target if form == "method" else self.like(target)
            function, arguments, used = self.call(name)
            if form == "method":
                if not f"{arguments},".startswith(f"{target},") or "functional" in function:
                    return False
                rest = arguments[len(target) + 1 :].strip()
                code = f"{target}.{function}_({rest})"
            else:
                code = f"torch.{function}({arguments}, out={target})"
                if not self.has_shape(f"torch.{function}({arguments})", to.shape):
                    return False
            exact = self.has_one_result(function, used, arguments)
            scale = self.scale_of(arguments)
        elif form == "copy_":
            used, exact, scale = (self.like(target),), True, 1.0
            code = f"{target}.copy_({used[0]})"
            exact = self.fits(used[0], to.dtype)
        elif form == "fill":
            used, exact, scale = (), True, 1.0
            code = self.pick([f"{target}.zero_()", f"{target}.fill_({self.some_number()})"])
        elif form == "masked_fill_":
            used, exact, scale = (self.like(target),), True, 1.0
            code = f"{target}.masked_fill_({used[0]} > 0, {self.some_number()})"
        else:
            if to.dim() == 0:
                return False
            value, used = self.value(target)
            exact, scale = all(self.fits(n, to.dtype) for n in used), 1.0
            index = self.pick(["0", "-1", "1:", "::2", "..., 0", "..., 1::3"])
            try:
                view = eval(f"t[{index}]", {"t": to})
            except (IndexError, RuntimeError):
                return False
            if not may_write(view, [self.tensor(n) for n in used]):
                return False
            # A number is checked by fill_, which cpu does not call here.
            if not used and not self.has_shape(
                f"torch.full((2,), {value}, dtype={to.dtype})", (2,)
            ):
                return False
            return self.emit(f"{target}[{index}] = {value}", target, (target, *used),
                             comparable=exact)  # fmt: skip
        if not may_write(to, [self.tensor(n) for n in used]):
            return False
        return self.emit(code, target, (target, *used), comparable=exact, scale=scale)

    def cast_step(self) -> bool:
        name, target = self.some_name(), self.new_name()
        dtype = self.pick(self.dtypes) if self.chance(0.5) else self.pick(DTYPES)
        return self.emit(f"{target} = {name}.to({dtype})", target, (name,),
                         comparable=self.fits(name, dtype))  # fmt: skip

    def view_step(self) -> bool:
        name, target = self.some_name(), self.new_name()
        tensor = self.tensor(name)
        dims = tensor.dim()
        if dims == 0:
            return self.emit(f"{target} = {name}.expand(2, 3)", target, (name,))
        d = self.random.randrange(dims)
        n = tensor.shape[d]
        order = self.random.sample(range(dims), dims)
        start, step = self.random.randrange(max(n, 1)), self.pick([1, 2, 3])
        # The sign and the payload of a NaN are nobody's promise.
        other = "detach" if tensor.is_floating_point() else self.pick(["uint8", "int16"])
        index = ":, " * d
        view = self.pick(
            [
                f"[{index}{start}::{step}]",
                f"[{index}:{max(n - start, 1)}]",
                f"[{index}{start}]",
                f".permute({order})",
                f".transpose(0, {d})",
                f".unsqueeze({d})",
                f".unsqueeze(-1).expand({[*tensor.shape, 3]})",
                ".reshape(-1)",
                f".flip({d})",
                f".narrow({d}, {start}, {max((n - start) // 2, 0)})",
                ".contiguous()",
                ".detach()",
                ".squeeze()",
                ".detach()" if other == "detach" else f".view(torch.{other})",
                ".contiguous(memory_format=torch.channels_last)",
                ".diagonal()",
            ]
        )
        return self.emit(f"{target} = {name}{view}", target, (name,))

    def reduce_step(self) -> bool:
        name = self.some_name()
        tensor = self.tensor(name)
        function = self.pick(REDUCTIONS)
        count = self.random.randint(1, max(tensor.dim(), 1))
        dims = list(range(-count, 0)) if self.chance(0.85) else [0]
        arguments = [name]
        if not (function in ("sum", "mean") and self.chance(0.1)):
            arguments += [str(self.pick([dims, tuple(dims), dims[-1]])),
                          f"keepdim={self.chance(0.6)}"]  # fmt: skip
        if function == "sum" and self.chance(0.2):
            arguments.append(f"dtype={self.pick(DTYPES[:8])}")
        target = self.new_name()
        exact = self.is_tame(name) and all(
            self.fits(name, d) for d in DTYPES[:8] if str(d) in arguments[-1]
        )
        return self.emit(f"{target} = torch.{function}({', '.join(arguments)})", target, (name,),
                         comparable=exact, scale=float(max(tensor.numel(), 1)))  # fmt: skip

    def composite_step(self) -> bool:
        """Normalisations over the last dimension, written by hand."""
        name = self.some_name()
        tensor = self.tensor(name)
        if not tensor.is_floating_point() or tensor.dim() == 0:
            return False
        lines = self.pick(
            [
                ["{a} = {x} - {x}.amax(-1, keepdim=True)", "{a}.exp_()",
                 "{b} = {a} / {a}.sum(-1, keepdim=True)"],
                ["{a} = {x} - {x}.mean(-1, keepdim=True)",
                 "{b} = {a} * torch.rsqrt((({a} * {a}).mean(-1, keepdim=True)) + 1e-5)"],
                ["{a} = {x}.float()", "{b} = {a}.square().sum(-1).sqrt()",
                 "{a} /= {b}.unsqueeze(-1)"],
                ["{a} = {x} - {x}.amin(-1, keepdim=True)", "{x}_max = {a}.amax(-1, True)",
                 "{b} = {a} / {x}_max"],
                ["{a} = {x} * 2", "{b} = {a}.sum(-1, keepdim=True)", "{a} -= {b}",
                 "{b} *= 0.5", "{a} += {b}"],
            ]
        )  # fmt: skip
        a, b = self.new_name(), self.new_name()
        for line in lines:
            code = line.format(a=a, b=b, x=name)
            if not self.emit(code, code.split()[0].split(".")[0], (name,), comparable=False):
                return False
        return True

    def other_step(self) -> bool:
        """Operators that are no part of any program."""
        name, target = self.some_name(), self.new_name()
        tensor = self.tensor(name)
        if tensor.dim() == 0:
            return False
        code = self.pick(
            [
                "torch.cumsum({x}, -1)",
                "torch.index_select({x}, 0, torch.zeros(2, dtype=torch.int64, device={x}.device))",
                "torch.cat([{x}, {x}])",
                "({x}.reshape({x}.shape[0], -1).float() @ {x}.float().flatten(1).t())",
                "torch.flip({x}, [0])",
                "torch.sort({x}, -1)[0]",
                "torch.empty_like({x}).copy_({x})",
                "torch.zeros_like({x})",
                "torch.full_like({x}, 3)",
            ]
        ).format(x=name)
        return self.emit(f"{target} = {code}", target, (name,), comparable=False)

    def drop_step(self) -> bool:
        if len(self.names) < 4:
            return False
        name = self.some_name()
        self.names.remove(name)
        return self.emit(f"del {name}", "", (name,))

    def look_step(self) -> bool:
        name = self.some_name()
        code = self.pick(
            ["synchronize()", "keep_busy()", f"see({name})", f"see({name}.reshape(-1)[0].item())"]
        )
        return self.emit(code, "", (name,) if name in code else ())

    def program(self, seed: int, length: int) -> RandomProgram:
        for _ in range(self.random.randint(2, 4)):
            self.make_input()
        self.emit("keep_busy()")
        if not self.names:
            return RandomProgram(seed, ())
        kinds: list[Callable[[], bool]] = [
            self.operator_step, self.chain_step, self.write_step, self.cast_step, self.view_step,
            self.reduce_step, self.composite_step, self.other_step, self.drop_step, self.look_step,
        ]  # fmt: skip
        weights = [12, 5, 7, 2, 4, 3, 1, 1, 3, 1]
        if self.dense:
            length *= 2
            weights = [12, 5, 7, 1, 0.3, 2, 1, 0.1, 4, 0.1]
        wanted = len(self.steps) + length
        for _ in range(10 * length):
            if len(self.steps) >= wanted:
                break
            self.random.choices(kinds, weights=weights)[0]()
        for name in self.random.sample(self.names, len(self.names)):
            self.emit(f"see({name})" if self.chance(0.5) else f"del {name}", "", (name,))
        return RandomProgram(seed, tuple(self.steps))


def random_program(seed: int) -> RandomProgram:
    """The program of a seed: always the same one."""
    choose = random.Random(-seed)
    elements = MANY_ELEMENTS if choose.random() < 0.06 else USUAL_ELEMENTS
    return Generator(seed, elements).program(seed, choose.randint(3, 22))
