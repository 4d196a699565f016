# SPDX-License-Identifier: BSD-3-Clause
"""Views on loom share memory, version counters and gradients as on cpu, and start no work."""

import pytest
import torch
from ops_support import assert_same, keep_busy, same_error

BASE = (4, 6, 8)

VIEWS = {
    "view": lambda t: t.view(24, 8),
    "view_dtype": lambda t: t.view(torch.int32),
    "view_wider_dtype": lambda t: t.view(torch.float64),
    "reshape": lambda t: t.reshape(6, 32),
    "flatten": lambda t: t.flatten(),
    "unflatten": lambda t: t.unflatten(1, (2, 3)),
    "t": lambda t: t[0].t(),
    "transpose": lambda t: t.transpose(0, 2),
    "permute": lambda t: t.permute(2, 0, 1),
    "movedim": lambda t: t.movedim(0, 1),
    "mT": lambda t: t.mT,
    "select": lambda t: t.select(1, 3),
    "index": lambda t: t[1, :, 2],
    "slice": lambda t: t[1:3, ::2],
    "narrow": lambda t: t.narrow(1, 2, 3),
    "split": lambda t: t.split(2, 1)[1],
    "split_sizes": lambda t: t.split([1, 5], 1)[1],
    "tensor_split": lambda t: t.tensor_split(3, 2)[2],
    "chunk": lambda t: t.chunk(2, 2)[1],
    "unbind": lambda t: t.unbind(1)[2],
    "hsplit": lambda t: t.hsplit(2)[1],
    "expand": lambda t: t[:, :1].expand(4, 5, 8),
    "expand_as": lambda t: t[:1].expand_as(t),
    "broadcast_to": lambda t: t.broadcast_to(2, 4, 6, 8),
    "squeeze": lambda t: t[:1].squeeze(0),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "diagonal": lambda t: t.diagonal(0, 1, 2),
    "unfold": lambda t: t.unfold(1, 3, 2),
    "as_strided": lambda t: t.as_strided((3, 5), (7, 2), 4),
    "view_as": lambda t: t.view_as(torch.empty(8, 24)),
    "detach": lambda t: t.detach(),
    "alias": lambda t: torch.ops.aten.alias(t),
    "view_as_complex": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)),
    "real": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)).real,
    "imag": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)).imag,
    "conj": lambda t: torch.view_as_complex(t.view(4, 6, 4, 2)).conj(),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "ravel": lambda t: t.ravel(),
    "positive": lambda t: t.positive(),
    "T": lambda t: t[0].T,
    "H": lambda t: t[0].H,
}
VIEW_NAMES = list(VIEWS)


def bases() -> tuple[torch.Tensor, torch.Tensor]:
    theirs = torch.arange(192.0).view(BASE).clone()
    return theirs.to("loom"), theirs


@pytest.mark.parametrize("name", VIEW_NAMES)
def test_geometry_values_and_storage(name: str) -> None:
    ours, theirs = bases()
    got, wanted = VIEWS[name](ours), VIEWS[name](theirs)
    assert got.storage_offset() == wanted.storage_offset()
    assert got.is_conj() == wanted.is_conj()
    assert got.is_neg() == wanted.is_neg()
    assert got._is_view() == wanted._is_view()
    assert got.untyped_storage()._cdata == ours.untyped_storage()._cdata
    assert got.data_ptr() - ours.data_ptr() == wanted.data_ptr() - theirs.data_ptr()
    assert_same(got, wanted)


@pytest.mark.parametrize("name", VIEW_NAMES)
def test_writes_are_seen_both_ways_and_counted_once(name: str) -> None:
    ours, theirs = bases()
    got, wanted = VIEWS[name](ours), VIEWS[name](theirs)
    for base, view in ((ours, got), (theirs, wanted)):
        base.mul_(2)
        view.zero_() if name in ("expand", "expand_as", "broadcast_to") else view.add_(1)
    assert got._version == wanted._version
    assert ours._version == theirs._version
    assert_same(ours, theirs)
    assert_same(got, wanted)


@pytest.mark.parametrize("name", VIEW_NAMES)
def test_views_take_no_command_and_no_wait(name: str) -> None:
    ours, _ = bases()
    waits = torch.loom.host_waits()
    torch.loom.reset_fallbacks()
    VIEWS[name](ours)
    assert torch.loom.host_waits() == waits
    assert torch.loom.fallbacks() == {}


@pytest.mark.parametrize("name", [n for n in VIEW_NAMES if n not in ("detach", "alias")])
def test_gradients_flow_through_views(name: str) -> None:
    grads = {}
    for device in ("cpu", "loom"):
        base = torch.arange(192.0).view(BASE).to(device).clone().requires_grad_()
        view = VIEWS[name](base)
        if view.requires_grad:
            (torch.view_as_real(view.resolve_conj()) if view.is_complex() else view).pow(
                2
            ).sum().backward()
        grads[device] = base.grad
    if grads["cpu"] is None:
        assert grads["loom"] is None
    else:
        assert_same(grads["loom"], grads["cpu"])


def test_in_place_write_through_a_view_is_an_error_for_saved_tensors() -> None:
    def call(device: str) -> None:
        x = torch.ones(4, device=device, requires_grad=True)
        y = x * 1
        z = (y * y).sum()
        y[:2].add_(1)
        z.backward()

    same_error(call, "modified by an inplace operation")


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.zeros(4, 6, device=d).view(5, 5),
        lambda d: torch.zeros(4, 6, device=d).t().view(24),
        lambda d: torch.zeros(4, 6, device=d).as_strided((2, 2), (-1, 1)),
        lambda d: torch.zeros(4, device=d).as_strided((2, 2), (4, 1), 9),
        lambda d: torch.zeros(4, device=d).as_strided((2,), (1, 1)),
        lambda d: torch.zeros(4, device=d).unfold(0, 5, 1),
        lambda d: torch.zeros(3, device=d).view(torch.float64),
        lambda d: torch.view_as_complex(torch.zeros(4, 3, device=d)),
        lambda d: torch.view_as_real(torch.zeros(4, device=d)),
        lambda d: torch.zeros(4, device=d).expand(3),
        lambda d: torch.zeros(4, 6, device=d).select(0, 9),
        lambda d: torch.zeros(4, 6, device=d).narrow(0, 3, 2),
        lambda d: torch.zeros(4, 1, device=d).expand(4, 3).add_(1),
        lambda d: torch.zeros(4, device=d).resize_(-3),
        lambda d: torch.zeros(4, device=d, requires_grad=True).resize_(3),
        lambda d: torch.zeros(4, device=d).set_(torch.zeros(4, dtype=torch.int32, device=d)),
        lambda d: torch.zeros(4, device=d).set_(
            torch.zeros(4, device=d).untyped_storage(), -1, (2,), (1,)
        ),
    ],
)
def test_errors_are_those_of_cpu(call) -> None:
    same_error(call)


# --- set_, resize_ ---------------------------------------------------------------------------


def test_set_to_a_tensor_shares_its_memory() -> None:
    source = torch.arange(6.0, device="loom").view(2, 3)[:, 1:]
    x = torch.empty(0, device="loom").set_(source)
    assert (x.size(), x.stride(), x.storage_offset()) == ((2, 2), (3, 1), 1)
    assert x.is_set_to(source)
    x.zero_()
    assert source.tolist() == [[0, 0], [0, 0]]


def test_set_to_a_storage() -> None:
    source = torch.arange(6.0, device="loom")
    whole = torch.empty(0, device="loom").set_(source.untyped_storage())
    part = torch.empty(0, device="loom").set_(source.untyped_storage(), 2, (2, 2), (1, 1))
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    assert part.tolist() == [[2, 3], [3, 4]]


def test_set_beyond_the_storage_grows_it() -> None:
    storage = torch.arange(2.0, device="loom").untyped_storage()
    x = torch.empty(0, device="loom").set_(storage, 1, (9,), (1,))
    assert storage.nbytes() == 40
    assert x[0].item() == 1


def test_set_to_nothing() -> None:
    x = torch.ones(3, device="loom").set_()
    assert (x.size(), x.untyped_storage().nbytes()) == ((0,), 0)


def test_set_to_a_host_tensor_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3, device="loom").set_(torch.ones(3))


@pytest.mark.parametrize("size", [(0,), (2,), (3, 2), (50, 40)], ids=str)
def test_resize_keeps_what_fits(size: tuple[int, ...]) -> None:
    ours, theirs = torch.arange(6.0, device="loom"), torch.arange(6.0)
    ours.resize_(size)
    theirs.resize_(size)
    kept = min(6, theirs.numel())
    assert ours.stride() == theirs.stride()
    assert ours.flatten()[:kept].tolist() == theirs.flatten()[:kept].tolist()
    assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()


def test_resize_as_and_memory_format() -> None:
    x = torch.empty(0, device="loom").resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.empty(0, device="loom").resize_as_(x).size() == x.size()


def test_growing_waits_for_no_work_and_loses_none() -> None:
    x = torch.zeros(1000, device="loom")
    keep_busy()
    x.add_(1)
    x.resize_(2000)
    x[1000:].fill_(2)
    assert x.sum().item() == 3000


def test_storage_resize_to_zero_gives_memory_back() -> None:
    x = torch.ones(1 << 20, device="loom")
    before = torch.loom.memory_allocated()
    x.untyped_storage().resize_(0)
    assert before - torch.loom.memory_allocated() == 4 << 20
    x.untyped_storage().resize_(4 << 20)
    assert x.fill_(2).sum().item() == 2 << 20


def test_lazy_clone_copies_before_the_first_write() -> None:
    x = torch.arange(4.0, device="loom")
    y = x._lazy_clone()
    y.add_(1)
    assert x.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int16], ids=str
)
@pytest.mark.parametrize(
    "sizes", [(1000, 4), (333, 3), (50, 7, 5), (40, 3, 6, 2), (5000, 1, 3), (17, 33, 2)]
)
def test_parts_of_short_rows(sizes, dtype) -> None:
    x = (torch.arange(torch.Size(sizes).numel()) % 113 - 40).to(dtype).view(sizes)
    for dim, size in enumerate(sizes):
        for begin, end in ((0, (size + 1) // 2), (size // 2, size), (size // 3, size)):

            def part(t, dim=dim, begin=begin, end=end):
                return t.narrow(dim, begin, end - begin)

            def changed(t, part=part):
                t = t.clone()
                part(t).mul_(3)
                return t

            def turned(t, part=part):
                return part(t) * 2 + part(t).transpose(0, -1).contiguous().transpose(0, -1)

            for function in (changed, turned, lambda t, part=part: part(t)[::2] + 1):
                assert function(x.to("loom")).cpu().equal(function(x))
