# SPDX-License-Identifier: BSD-3-Clause
"""Calls that cpu refuses, of families: lists of tensors, dtypes that are memory only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from refusal_cases import call, ones
from refusals import Call, outcome
from torch.nn import functional

LISTS = {
    "floats": [ones(3), ones(2, 2)],
    "integers": [ones(3, dtype=torch.int64), ones(2, dtype=torch.int64)],
    "truth values": [ones(3, dtype=torch.bool)],
    "complex numbers": [ones(3, dtype=torch.complex64), ones(2, dtype=torch.complex64)],
    "halves": [ones(3, dtype=torch.float16)],
}


def arguments(tensors: list[torch.Tensor]) -> dict[str, tuple[Any, ...]]:
    others = [each.clone() for each in tensors]
    return {
        "alone": (tensors,),
        "with a number": (tensors, 0.5),
        "with a complex number": (tensors, 1 + 2j),
        "with a list": (tensors, others),
        "with a shorter list": (tensors, others[:-1]),
        "with numbers": (tensors, [0.5] * len(tensors)),
        "with two lists": (tensors, others, others),
        "with two lists and a complex number": (tensors, others, others, 1 + 2j),
        "with a list and a complex number": (tensors, others, 1 + 2j),
    }


def foreach() -> list[Call]:
    calls = []
    for name in sorted(name for name in dir(torch) if name.startswith("_foreach_")):
        function = getattr(torch, name)
        for how, floats in arguments(LISTS["floats"]).items():
            refused = outcome(Call(name, function, floats), "cpu")
            if refused is not None and refused.kind == "TypeError":
                continue  # Python knows no such form
            for kind, tensors in LISTS.items():
                args = arguments(tensors)[how]
                calls.append(Call(f"{name} of {kind} {how}", function, args))
    return calls


SMALL_DTYPES = [
    getattr(torch, name)
    for name in (
        *(f"int{bits}" for bits in range(1, 8)),
        *(f"uint{bits}" for bits in range(1, 8)),
        "float4_e2m1fn_x2",
        "bits8",
    )
]


def small_dtypes() -> list[Call]:
    """Of dtypes that are memory and little else."""
    functions: dict[str, Callable[[torch.Tensor], Any]] = {
        "fill_": lambda x: x.fill_(1),
        "full_like": lambda x: torch.full_like(x, 1),
        "ones_like": torch.ones_like,
        "zeros_like": torch.zeros_like,
        "to float": lambda x: x.to(torch.float32),
        "copy_ of floats": lambda x: x.copy_(torch.ones(3, device=x.device)),
        "add": lambda x: x + 1,
        "clone": lambda x: x.clone(),
        "contiguous": lambda x: x.view(1, 3).expand(2, 3).contiguous(),
        "cat": lambda x: torch.cat([x, x]),
        "stack": lambda x: torch.stack([x, x]),
        "eq": lambda x: x == x,
        "sum": lambda x: x.sum(),
        "item": lambda x: x[:1].item(),
        "tolist": lambda x: x.tolist(),
        "index": lambda x: x[torch.zeros(1, dtype=torch.int64, device=x.device)],
        "index_select": lambda x: x.index_select(
            0, torch.zeros(1, dtype=torch.int64, device=x.device)
        ),
        "where": lambda x: torch.where(torch.ones(3, device=x.device) > 0, x, x),
        "sort": torch.sort,
        "random_": lambda x: x.random_(),
        "uniform_": lambda x: x.uniform_(),
        "bernoulli_": lambda x: x.bernoulli_(),
        "arange": lambda x: torch.arange(3, dtype=x.dtype, device=x.device),
        "linspace": lambda x: torch.linspace(0, 1, 3, dtype=x.dtype, device=x.device),
        "eye": lambda x: torch.eye(3, dtype=x.dtype, device=x.device),
        "tril": lambda x: torch.tril(x.view(1, 3)),
        "mm": lambda x: x.view(1, 3) @ x.view(3, 1),
        "nonzero": torch.nonzero,
        "unique": torch.unique,
        "equal": lambda x: torch.equal(x, x),
        "flip": lambda x: x.flip(0),
        "roll": lambda x: x.roll(1),
        "repeat": lambda x: x.repeat(2),
        "masked_fill": lambda x: x.masked_fill(torch.ones(3, device=x.device) > 0, 1),
        "softmax": lambda x: torch.softmax(x, 0),
        "cumsum": lambda x: x.cumsum(0),
        "max": torch.max,
        "isnan": torch.isnan,
        "float()": lambda x: x.float(),
        "to itself": lambda x: x.to(x.dtype, copy=True),
        "embedding": lambda x: functional.embedding(
            torch.zeros(1, dtype=torch.int64, device=x.device), x.view(1, 3)
        ),
    }
    calls = []
    for dtype in SMALL_DTYPES:
        for name, function in functions.items():

            def of_dtype(x: torch.Tensor, function=function, dtype=dtype) -> Any:
                return function(x.view(dtype))

            calls.append(call(f"{name} of {dtype}", of_dtype, ones(3, dtype=torch.uint8)))
    return calls


def checked_factorisations() -> list[Call]:
    """What is raised because the data are looked at, by the call itself."""
    zeros = torch.zeros(2, 2)
    negative = -torch.eye(2)
    linalg = torch.linalg
    return [
        call("cholesky_ex", linalg.cholesky_ex, negative, check_errors=True),
        call("inv_ex", linalg.inv_ex, zeros, check_errors=True),
        call("ldl_factor_ex", linalg.ldl_factor_ex, zeros, check_errors=True),
        call("lu_factor_ex", linalg.lu_factor_ex, zeros, check_errors=True),
        call("solve_ex", linalg.solve_ex, zeros, zeros, check_errors=True),
        call("cholesky", linalg.cholesky, negative),
        call("inv", linalg.inv, zeros),
        call("solve", linalg.solve, zeros, zeros),
    ]


FAMILIES: dict[str, Callable[[], list[Call]]] = {
    "foreach": foreach,
    "small dtypes": small_dtypes,
}
