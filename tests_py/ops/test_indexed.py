# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes through an index along one dimension: values of cpu, on any number of cores."""

from collections.abc import Callable, Iterator

import pytest
import torch
from compare import agrees, to_loom

pytestmark = pytest.mark.filterwarnings("ignore:index_reduce.. is in beta:UserWarning")

# Rows, columns and items that are cut; a vector, which is not.
SHAPES = [(300, 200), (3, 700, 33), (900, 1, 7), (2, 900, 20), (1, 5, 40000), (20000,)]
aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16, torch.float16]


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(4).to(dtype)


def places(shape: tuple[int, ...], end: int) -> torch.Tensor:
    return torch.randint(end, shape, generator=torch.Generator().manual_seed(4))


def with_length(shape: tuple[int, ...], dim: int, length: int) -> tuple[int, ...]:
    return (*shape[:dim], length, *shape[dim + 1 :])


def dims(shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
    return [(shape, dim) for dim in range(len(shape))]


EVERY = [each for shape in SHAPES for each in dims(shape)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), EVERY, ids=str)
def test_rows_are_combined(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x, count = numbers(shape, dtype), shape[dim] // 2 + 3
    source = numbers(with_length(shape, dim, count), dtype, 5)
    for index in (places((count,), shape[dim]), places((count,), shape[dim]).int()):
        agrees(lambda t, i, s: t.index_add(dim, i, s), x, index, source)
        agrees(lambda t, i, s: t.index_add(dim - t.dim(), i, s, alpha=-2), x, index, source)
    for how in ("prod", "mean", "amax", "amin"):
        for own in (True, False):
            agrees(
                lambda t, i, s, h=how, o=own: t.index_reduce(dim, i, s, h, include_self=o),
                x,
                places((count,), shape[dim]),
                source,
            )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.complex128], ids=str)
@pytest.mark.parametrize(("shape", "dim"), EVERY, ids=str)
def test_rows_are_copied_and_filled(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x, count = numbers(shape, dtype), shape[dim] // 2 + 1
    once = torch.randperm(shape[dim], generator=torch.Generator().manual_seed(6))[:count]
    source = numbers(with_length(shape, dim, count), dtype, 5)
    agrees(lambda t, i, s: t.index_copy(dim, i, s), x, once, source)
    agrees(lambda t, i: t.index_fill(dim, i, 1), x, once)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.complex128], ids=str)
@pytest.mark.parametrize(("shape", "dim"), EVERY, ids=str)
def test_elements(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x, count = numbers(shape, dtype), shape[dim] // 2 + 1
    sizes = with_length(shape, dim, count)
    index = places(sizes, shape[dim])
    once = numbers(shape, torch.float32, 7).argsort(dim).narrow(dim, 0, count).contiguous()
    source = numbers(with_length(shape, dim, count + 2), dtype, 5)
    agrees(lambda t, i: t.gather(dim, i), x, index)
    agrees(lambda t, i: t.gather(dim - t.dim(), i), x, index)
    agrees(lambda t, i, s: t.scatter(dim, i, s), x, once, source)
    agrees(lambda t, i: t.scatter(dim, i, 1), x, index)
    agrees(lambda t, i: t.take(i), x, index)
    if dtype == torch.bool:
        return
    agrees(lambda t, i, s: t.scatter_add(dim, i, s), x, index, source)
    if dtype.is_complex:
        return
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            agrees(
                lambda t, i, s, h=how, o=own: t.scatter_reduce(dim, i, s, h, include_self=o),
                x,
                index,
                source,
            )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.complex128], ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((300, 200), 0), ((4, 50, 60), 1), ((3, 40, 2, 9), 1)])
def test_an_expanded_index_names_items(
    shape: tuple[int, ...], dim: int, dtype: torch.dtype
) -> None:
    count = shape[dim] // 2 + 3
    sizes = with_length(shape, dim, count)
    common = places((*[1] * dim, count, *[1] * (len(shape) - dim - 1)), shape[dim])
    of_each = places((*sizes[: dim + 1], *[1] * (len(shape) - dim - 1)), shape[dim])
    x, source = numbers(shape, dtype), numbers(sizes, dtype, 5)
    for index in (common, of_each):
        agrees(lambda t, i: t.gather(dim, i.expand(sizes)), x, index)
        agrees(lambda t, i: torch.gather(t, dim, i.expand(sizes), out=t.new_empty(sizes)), x, index)
        if dtype == torch.bool:
            continue
        agrees(lambda t, i, s: t.scatter_add(dim, i.expand(sizes), s), x, index, source)
        if dtype.is_complex:
            continue
        for how in ("sum", "prod", "mean", "amax", "amin"):
            for own in (True, False):
                agrees(
                    lambda t, i, s, h=how, o=own: t.scatter_reduce(
                        dim, i.expand(sizes), s, h, include_self=o
                    ),
                    x,
                    index,
                    source,
                )
    once = torch.randperm(shape[dim], generator=torch.Generator().manual_seed(6))[: shape[dim] // 2]
    fewer = with_length(shape, dim, len(once))
    alone = once.view(*[1] * dim, -1, *[1] * (len(shape) - dim - 1)).expand(fewer)
    agrees(lambda t, i, s: t.scatter(dim, i, s), x, alone, numbers(fewer, dtype, 5))


def test_an_expanded_index_beyond_the_end() -> None:
    x = numbers((30, 20), torch.float32).to("loom")
    for wrong in (30, -1):
        index = torch.tensor([3, wrong], device="loom").view(-1, 1).expand(2, 20)
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            x.gather(0, index).cpu()
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            x.scatter_add(0, index, x[:2]).cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_elements_of_tensors_that_lie_otherwise(dtype: torch.dtype) -> None:
    x, index = numbers((90, 130), dtype), places((130, 90), 90)
    agrees(lambda t, i: t.t().gather(1, i), x, index)
    agrees(lambda t, i: t.t()[:, ::2].gather(0, i[:, ::2]), x, index)
    agrees(lambda t, i: t.gather(0, i.t()), x, index)
    agrees(lambda t, i: t.scatter_add(0, i.t(), t), x, index)
    agrees(lambda t, i: t.t().scatter_add(1, i, t.t()), x, index)
    agrees(lambda t, i: t.scatter(0, i.t(), 3), x, index)


def test_what_is_not_a_number_stays() -> None:
    x = numbers((300, 200), torch.float32)
    x[5:9] = torch.nan
    source, index = numbers((400, 200), torch.float32), places((400,), 300)
    source[3] = torch.nan
    for how in ("amax", "amin"):
        agrees(lambda t, i, s, h=how: t.index_reduce(0, i, s, h), x, index, source)
        agrees(
            lambda t, i, s, h=how: t.scatter_reduce(0, i, s, h),
            x,
            places((400, 200), 300),
            source,
        )


def test_of_places_named_twice_the_last_one_counts() -> None:
    x, source, index = (
        torch.zeros(300, 200),
        numbers((600, 200), torch.float32),
        places((600,), 300),
    )
    expected = x.clone()
    for place, row in zip(index.tolist(), source, strict=True):
        expected[place] = row
    assert torch.equal(
        x.to("loom").index_copy(0, index.to("loom"), source.to("loom")).cpu(), expected
    )


WRITES: dict[str, Callable[..., torch.Tensor]] = {
    "index_add": lambda x, i, s, g: x.index_add(0, i, s),
    "index_copy": lambda x, i, s, g: x.index_copy(0, i, s),
    "index_reduce": lambda x, i, s, g: x.index_reduce(0, i, s, "prod"),
    "index_fill": lambda x, i, s, g: x.index_fill(0, i, 1),
    "gather": lambda x, i, s, g: x.gather(0, g),
    "scatter": lambda x, i, s, g: x.scatter(0, g, s),
    "scatter of a number": lambda x, i, s, g: x.scatter(0, g, 2.0),
    "scatter_add": lambda x, i, s, g: x.scatter_add(0, g, s),
    "scatter_reduce": lambda x, i, s, g: x.scatter_reduce(0, g, s, "amax"),
    "take": lambda x, i, s, g: x.take(g * 1000),
}


@pytest.fixture
def all_cores() -> Iterator[None]:
    yield
    torch.loom.set_num_threads(torch.loom.get_device_properties(0).core_count)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.usefixtures("all_cores")
def test_cores_do_not_matter(name: str) -> None:
    inputs = (
        numbers((300, 200), torch.float32),
        places((400,), 300),
        numbers((400, 200), torch.float32),
        places((400, 200), 60),
    )
    found = []
    for _ in range(2):
        found.append(WRITES[name](*(each.to("loom") for each in inputs)).cpu())
        torch.loom.set_num_threads(1)
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("wrong", [-90000, 300])
def test_a_place_that_is_not_there(name: str, wrong: int) -> None:
    index, elements = places((400,), 300), places((400, 200), 60)
    index[399] = elements[300, 7] = wrong
    x, source = torch.zeros(300, 200), torch.ones(400, 200)
    messages = []
    for device in ("cpu", "loom"):
        with pytest.raises((RuntimeError, IndexError)) as raised:
            WRITES[name](*(each.to(device) for each in (x, index, source, elements))).cpu()
        messages.append((raised.type, str(raised.value).split(" (asynchronous")[0].split("\n")[0]))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(300, 200), (3, 70, 33), (2000,)], ids=str)
def test_a_single_index(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = numbers(shape, dtype)
    for dim, size in enumerate(shape):
        before = (slice(None),) * dim
        for index in (
            places((size + 40,), size) - size // 2,
            places((8, size // 4 + 2), size).int(),
            torch.tensor(-1),
        ):
            selected = x[(*before, index)].shape
            once = torch.randperm(size, generator=torch.Generator().manual_seed(6)) - size
            values = numbers(tuple(selected), dtype, 5)
            agrees(lambda t, i, b=before: t[(*b, i)], x, index)
            put = (None,) * dim
            agrees(lambda t, i, v, b=put: aten.index_put_(t.clone(), (*b, i), v), x, once, x)
            agrees(
                lambda t, i, v, b=put: aten.index_put_(t.clone(), (*b, i), v),
                x,
                index,
                x.new_tensor(3),
            )
            if dtype not in (torch.bool, torch.bfloat16):
                agrees(
                    lambda t, i, v, b=put: aten.index_put(t, (*b, i), v, accumulate=True),
                    x,
                    index,
                    values,
                )


@pytest.mark.parametrize("wrong", [-301, 300])
def test_an_index_beyond_the_end(wrong: int) -> None:
    index = places((400,), 300)
    index[399] = wrong
    x, values = torch.zeros(300, 200), torch.ones(400, 200)
    for function in (
        lambda t, i, v: t[i],
        lambda t, i, v: t.index_put((i,), v),
        lambda t, i, v: t.index_put((i,), v, accumulate=True),
    ):
        messages = []
        for device in ("cpu", "loom"):
            with pytest.raises(IndexError) as raised:
                function(*(each.to(device) for each in (x, index, values))).cpu()
            messages.append(str(raised.value).split(" (asynchronous")[0])
        assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "view",
    [lambda i: i[::2], lambda i: i[3].expand(9), lambda i: i.view(30, 10)[:, 4], lambda i: i[5:90]],
    ids=["stepped", "expanded", "column", "part"],
)
def test_an_index_that_is_a_view(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Its elements were taken to lie behind each other."""
    x, index = numbers((300, 20), torch.float32), places((300,), 300)
    agrees(lambda t, i: t[view(i)], x, index)
    agrees(lambda t, i: t.index_select(0, view(i)), x, index)
    agrees(lambda t, i: t.index_add(0, view(i), torch.ones_like(t)[: len(view(i))]), x, index)

    def written(t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        t[view(i)] = 2.0
        return t

    agrees(written, x, index)


def test_what_shares_memory_with_an_index_or_its_values() -> None:
    x = numbers((700, 30), torch.float32)
    agrees(lambda t: t.clone().index_put_((torch.arange(700).to(t.device),), t * 2), x)

    for device in ("cpu", "loom"):
        own = torch.arange(9000, device=device)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            own[own[:30]] = own[30:60].clone()


def test_gradients_of_rows_that_are_read() -> None:
    for shape in ((300, 200), (5000,)):
        gradients = []
        for device in ("cpu", "loom"):
            x = numbers(shape, torch.float64).to(device).requires_grad_()
            index = (places((900,), shape[0]) - 100).to(device)
            (x[index] * x[index]).sum().backward()
            gradients.append(x.grad.cpu())
        torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(300, 200), (20000,), ()], ids=str)
def test_elements_of_the_whole_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = numbers(shape, dtype)
    count = x.numel()
    once = torch.randperm(count, generator=torch.Generator().manual_seed(6)) - count // 2
    agrees(lambda t, i: t.take(i), x, places((7, 900), count) - count // 2)
    agrees(lambda t, i, s: t.put(i, s), x, once, numbers((count,), dtype, 5))
    if dtype not in (torch.bool, torch.bfloat16):
        many = places((9, 400), count) - count // 2
        values = numbers((3600,), dtype, 5)
        agrees(lambda t, i, s: t.put(i, s, accumulate=True), x, many, values)
    for function in (lambda t, i: t.take(i), lambda t, i: t.put(i, t.flatten()[:1])):
        messages = []
        for device in ("cpu", "loom"):
            with pytest.raises(IndexError) as raised:
                function(x.to(device), torch.tensor([-count - 1], device=device)).cpu()
            messages.append(str(raised.value).split(" (asynchronous")[0])
        assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("dtype", "number"), [(torch.int8, 300), (torch.float32, 1e40), (torch.int32, 2 + 1j)]
)
def test_numbers_that_a_dtype_does_not_hold_are_refused_at_the_call(dtype, number) -> None:
    index = torch.zeros(600, 600, dtype=torch.int64)
    messages = []
    for device in ("cpu", "loom"):
        x = torch.zeros(600, 600, dtype=dtype, device=device)
        with pytest.raises(RuntimeError) as raised:
            x.scatter(0, index.to(device), number)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    torch.loom.synchronize()
    bytes_of_masks = torch.zeros(600, 600, dtype=torch.uint8, device="loom")
    torch.loom.reset_fallbacks()
    assert bytes_of_masks.scatter(0, index.to("loom"), 255)[0].min().item() == 255
    assert torch.loom.fallbacks() == {}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_half_types_are_combined_in_float32(dtype, dim):
    """Many elements fall on each place: their sum is rounded once, to the bits that cpu has."""
    x, source = (
        numbers((40, 300), dtype, 3),
        numbers((900, 300) if dim == 0 else (40, 900), dtype, 5),
    )
    index = torch.arange(source.numel()).view(source.shape) * 7 % x.shape[dim]
    own = to_loom((x, index, source))
    for how in ("sum", "prod", "amax", "amin"):
        for counts in (True, False):
            got, wanted = (
                torch.scatter_reduce(t, dim, i, s, how, include_self=counts)
                for t, i, s in (own, (x, index, source))
            )
            torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(own[0].scatter_add(dim, *own[1:]).cpu(), x.scatter_add(dim, index, source))
    with pytest.raises((IndexError, RuntimeError), match="is out of bounds"):
        own[0].scatter_add(dim, own[1] + 1, own[2]).cpu()
