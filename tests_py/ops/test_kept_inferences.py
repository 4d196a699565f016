# SPDX-License-Identifier: BSD-3-Clause
"""What a shape inference said of a call is kept: a launch runs no Python."""

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compare import agrees
from op_db_differences import HOST_ARGUMENTS
from op_db_worker import pick_dtype
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

pytestmark = pytest.mark.thorough

F = torch.nn.functional
aten = torch.ops.aten

# Where PyTorch's shape inferences in Python are.
INFERENCES = tuple(
    str(Path(torch.__file__).parent / name)
    for name in ("_refs", "_decomp", "_prims", "_meta_registrations")
)


def inferences_run(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> set[str]:
    """The Python functions of PyTorch's shape inferences that the call runs."""
    run: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(INFERENCES):
            run.add(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arguments, **keywords)
    finally:
        sys.setprofile(before)
    return run


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def test_an_inference_is_seen_here_when_it_runs():
    x = torch.ones(3, 5, 7, device="loom")
    lengths = torch.tensor([1, 2], device="loom")
    assert inferences_run(torch.segment_reduce, x, "sum", lengths=lengths)
    assert not inferences_run(torch.segment_reduce, x, "sum", lengths=lengths)


def moved(tree: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to("loom"), tree)


def calls() -> Iterator[Any]:
    """What op_db's operators do with their first sample, on loom."""
    for info in op_db:
        torch.manual_seed(0)
        samples = info.sample_inputs("cpu", pick_dtype(info), requires_grad=False)
        for sample in itertools.islice(samples, 1):
            given = (sample.input, sample.args, sample.kwargs)
            on_loom = given if info.name in HOST_ARGUMENTS else moved(given)
            keywords = dict(on_loom[2])
            if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(on_loom)):
                keywords["device"] = "loom"
            yield info, (on_loom[0], *on_loom[1]), keywords


def test_no_operator_runs_python_for_shapes_at_its_second_call():
    asked: dict[str, set[str]] = {}
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info, arguments, keywords in calls():
            try:
                info.op(*arguments, **keywords)
            except Exception:  # on cpu, too: test_op_db.py
                refused += 1
                continue
            on_host = info.name in HOST_ARGUMENTS
            run = set() if on_host else inferences_run(info.op, *arguments, **keywords)
            if run:
                asked[info.name] = run
    torch.loom.synchronize()
    assert not asked
    assert refused < 20


# --- calls that differ in one thing ----------------------------------------------------------

# Lists of calls that follow each other and differ in one thing only; each has to be cpu's.
FAMILIES = {
    "sizes": [
        lambda x: aten.segment_reduce(x.contiguous(), "sum", lengths=_count(x), axis=0, unsafe=True)
    ],
    "keepdim": [
        lambda x: torch.std_mean(x, 1),
        lambda x: torch.std_mean(x, 1, keepdim=True),
        lambda x: torch.std_mean(x, (0, 1), keepdim=True),
    ],
    "dims": [
        lambda x: torch.count_nonzero(x, 0),
        lambda x: torch.count_nonzero(x, 1),
        lambda x: torch.count_nonzero(x, (0, 1)),
        torch.count_nonzero,
    ],
    "numbers": [
        lambda x: F.unfold(x[None, None], (2, 3)),
        lambda x: F.unfold(x[None, None], (3, 2)),
        lambda x: F.unfold(x[None, None], (2, 3), padding=2),
        lambda x: F.unfold(x[None, None], (2, 3), stride=2),
    ],
    "flags": [
        lambda x: torch.bucketize(x.contiguous(), x[0].sort().values),
        lambda x: torch.bucketize(x.contiguous(), x[0].sort().values, out_int32=True),
    ],
    "conjugates": [
        lambda x: torch.flip(torch.complex(x, x + 1).conj(), (0,)),
        lambda x: torch.flip(torch.complex(x, x + 1), (0,)),
    ],
    "absent weights": [
        lambda x: F.binary_cross_entropy(x.sigmoid(), x.cos().abs(), reduction="none"),
        lambda x: F.binary_cross_entropy(
            x.sigmoid(), x.cos().abs(), weight=x[:1], reduction="none"
        ),
    ],
    "lengths of lists": [
        lambda x: torch.roll(x, (1,), (0,)),
        lambda x: torch.roll(x, (1, 2), (0, 1)),
        lambda x: aten._chunk_cat([x, x], 0, 2),
        lambda x: aten._chunk_cat([x, x, x], 0, 2),
    ],
    "modes": [
        lambda x: F.huber_loss(x, x * 2, reduction="none"),
        lambda x: F.huber_loss(x, x * 2, reduction="mean"),
        lambda x: F.huber_loss(x, x * 2, reduction="none", delta=0.5),
    ],
}


def _count(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1, x.shape[0] - 1], device=x.device)


LAYOUTS = [
    lambda x: x,
    lambda x: x.t().contiguous().t(),
    lambda x: x[:, ::2],
    lambda x: x[:4],
    lambda x: x.double(),
    lambda x: x[:1].expand(6, -1),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_that_differ_in_one_thing_are_told_apart(family):
    x = numbers(6, 8)
    for _ in range(2):
        for layout in LAYOUTS:
            for call in FAMILIES[family]:
                agrees(call, layout(x))


def test_the_default_dtype_is_part_of_a_call():
    x = torch.arange(-3, 3, device="loom")
    assert torch.angle(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.angle(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.angle(x).dtype == torch.float32


def test_an_empty_output_grows_and_one_of_the_right_size_stays():
    x = numbers(5, 7).sort().values
    edges, wanted = x[0].contiguous(), x[1].contiguous()

    def search(edges: torch.Tensor, wanted: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(edges, wanted, out=out)

    for _ in range(2):
        agrees(search, edges, wanted, torch.empty(0, dtype=torch.long))
        agrees(search, edges, wanted, torch.empty(7, dtype=torch.long))


def test_a_refused_call_is_refused_again():
    prediction, target = torch.full((4,), 2.0, device="loom"), torch.ones(3, device="loom")
    for _ in range(2):
        with pytest.raises(ValueError, match="Using a target size"):
            F.binary_cross_entropy(prediction, target)
        with pytest.raises(RuntimeError, match="dim"):
            torch.flip(prediction, (0, 0))
    assert torch.flip(target, (0,)).shape == (3,)
