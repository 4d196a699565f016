# SPDX-License-Identifier: BSD-3-Clause
"""Bags of embeddings and their gradients: values of cpu, however bags are cut."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from compare import agrees, gradients_agree, natively, to_loom

aten = torch.ops.aten
# Tables, bags and places: bags are cut; a few are, by columns; one block; rows that fill no vector.
SHAPES = [(50, 40, 700, 9000), (90, 300, 2, 5000), (7, 64, 5, 13), (30, 3, 2000, 2000)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
MODES = ["sum", "mean", "max"]


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bags_of(shape: tuple[int, ...], *, last: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices, and offsets of which some are equal."""
    rows, _, bags, places = shape
    g = torch.Generator().manual_seed(5)
    indices = torch.randint(rows, (places,), generator=g)
    offsets = torch.randint(places + 1, (bags,), generator=g).sort().values
    offsets[0] = 0
    return indices, torch.cat([offsets, torch.tensor([places])]) if last else offsets


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bags_are_reduced(shape: tuple[int, ...], mode: str, dtype: torch.dtype) -> None:
    table = numbers(*shape[:2], dtype=dtype)
    for last in (False, True):
        indices, offsets = bags_of(shape, last=last)
        for padding in (None, 2):
            keywords: dict[str, Any] = {
                "mode": mode,
                "padding_idx": padding,
                "include_last_offset": last,
            }
            for kind in (torch.int32, torch.int64):
                agrees(
                    lambda i, t, o, k=keywords: F.embedding_bag(i, t, o, **k),
                    indices.to(kind),
                    table,
                    offsets.to(kind),
                )


@pytest.mark.parametrize("name", ["_embedding_bag", "_embedding_bag_forward_only"])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_what_gradients_are_computed_from(mode: int, name: str) -> None:
    for shape in SHAPES:
        for last in (False, True):
            for padding in (-1, 2):
                table, (indices, offsets) = numbers(*shape[:2]), bags_of(shape, last=last)

                def run(
                    t: torch.Tensor, i: torch.Tensor, o: torch.Tensor, last=last, padding=padding
                ) -> Any:
                    return getattr(aten, name)(t, i, o, False, mode, False, None, last, padding)

                agrees(run, table, indices, offsets)
                agrees(run, table, indices.int(), offsets)  # ATen makes them alike


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places_have_weights(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        indices, offsets = bags_of(shape)
        for padding in (None, 2):
            agrees(
                lambda i, t, o, w, p=padding: F.embedding_bag(
                    i, t, o, mode="sum", per_sample_weights=w, padding_idx=p
                ),
                indices,
                numbers(*shape[:2], dtype=dtype),
                offsets,
                numbers(shape[3], dtype=dtype, seed=8).abs(),
            )


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_a_table_lie_apart(mode: str) -> None:
    indices, offsets = bags_of(SHAPES[0])
    for table in (numbers(50, 100)[:, 7:47], numbers(40, 50).t(), numbers(50, 40).double()):
        agrees(lambda i, t, o: F.embedding_bag(i, t, o, mode=mode), indices, table, offsets)


def test_what_is_not_a_number_stays_first() -> None:
    table = numbers(4, 5)
    table[0, 1] = table[2, 3] = float("nan")
    agrees(lambda i, t: F.embedding_bag(i, t, mode="max"), torch.tensor([[0, 1, 2, 3]]), table)
    agrees(lambda i, t: F.embedding_bag(i, t, mode="max"), torch.tensor([[1, 2, 3, 0]]), table)


@pytest.mark.parametrize("frequency", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(shape: tuple[int, ...], mode: str, frequency: bool) -> None:
    if frequency and mode == "max":
        return
    indices, offsets = bags_of(shape)
    for padding in (None, 2):
        gradients_agree(
            lambda t, p=padding: F.embedding_bag(
                indices.to(t.device),
                t,
                offsets.to(t.device),
                mode=mode,
                padding_idx=p,
                scale_grad_by_freq=frequency,
            ),
            numbers(*shape[:2]),
        )


def test_gradients_of_weights() -> None:
    for shape in SHAPES:
        indices, offsets = bags_of(shape)
        gradients_agree(
            lambda t, w, i=indices, o=offsets: F.embedding_bag(
                i.to(t.device), t, o.to(t.device), mode="sum", per_sample_weights=w
            ),
            numbers(*shape[:2]),
            numbers(shape[3], seed=8),
        )


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_half_gradients_are_rounded_once(mode: str, dtype: torch.dtype) -> None:
    shape = SHAPES[0]
    indices, offsets = bags_of(shape)
    table, seed = numbers(*shape[:2], dtype=dtype), numbers(shape[2], shape[1], dtype=dtype)

    def gradient(t: torch.Tensor, i: torch.Tensor, o: torch.Tensor, s: torch.Tensor) -> Any:
        leaf = t.detach().requires_grad_()
        F.embedding_bag(i, leaf, o, mode=mode).backward(s)
        return leaf.grad

    exact = gradient(table.double(), indices, offsets, seed.double())
    actual = natively(gradient, *to_loom((table, indices, offsets, seed)))
    assert actual.dtype == dtype
    # Those of maxima are added in the dtype, as on cpu.
    bound = torch.finfo(dtype).eps * exact.abs().max() * (20 if mode == "max" else 1)
    assert (actual.cpu().double() - exact).abs().max() <= bound


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_of_embeddings(dtype: torch.dtype) -> None:
    for rows, columns, places in ((50, 40, 9000), (3, 300, 5000), (4000, 20, 100)):
        g = torch.Generator().manual_seed(5)
        index = torch.randint(rows, (places,), generator=g)
        gradient = numbers(places, columns, dtype=dtype)
        exact = aten.embedding_dense_backward(gradient.double(), index, rows, 1, False)
        actual = natively(
            aten.embedding_dense_backward, *to_loom((gradient, index)), rows, 1, False
        )
        error = (actual.cpu().double() - exact).abs().max() / exact.abs().max()
        assert error <= torch.finfo(dtype).eps * (100 if dtype == torch.float32 else 1)


@pytest.mark.parametrize("mode", MODES)
def test_wrong_offsets_are_described(mode: str) -> None:
    table = torch.ones(10, 4)

    def fails(indices: list[int], offsets: list[int], last: bool) -> None:
        def call(device: str) -> None:
            places, begins = torch.tensor(indices), torch.tensor(offsets)
            F.embedding_bag(
                places.to(device),
                table.to(device),
                begins.to(device),
                mode=mode,
                include_last_offset=last,
            )
            torch.loom.synchronize()

        with pytest.raises(RuntimeError) as expected:
            call("cpu")
        with pytest.raises(RuntimeError) as actual:
            call("loom")
        assert str(expected.value).splitlines()[0] in str(actual.value)

    fails([1, 2, 3], [1, 2], False)
    fails([1, 2, 3], [0, 4], False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", [20, -3])
def test_unknown_words_are_found(index: int, mode: str) -> None:
    table, indices = torch.ones(10, 4, device="loom"), torch.tensor([[1, index]], device="loom")
    F.embedding_bag(indices, table, mode=mode)
    with pytest.raises(RuntimeError, match="_embedding_bag"):
        torch.loom.synchronize()


def test_gradients_of_bags_that_are_not_in_order_are_refused() -> None:
    # ATen's kernel of the sums accepts them on one core.
    table = torch.ones(100, 64, device="loom", requires_grad=True)
    places = torch.zeros(500, dtype=torch.int64, device="loom")
    offsets = torch.tensor([0, 50, 499, 200], device="loom")

    def differentiate() -> None:
        F.embedding_bag(places, table, offsets, mode="sum").sum().backward()
        torch.accelerator.synchronize()

    with pytest.raises(RuntimeError, match=r"index_size|offsets in order"):
        differentiate()
