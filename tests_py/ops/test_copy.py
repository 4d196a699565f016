# SPDX-License-Identifier: BSD-3-Clause
"""copy_ in every direction, dtype and layout; what is asynchronous and what waits."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from ops_support import DTYPES, assert_same, held, keep_busy, same_error

DIRECTIONS = [("loom", "loom"), ("cpu", "loom"), ("loom", "cpu")]

# Both are functions of a (6, 9) tensor and give a (3, 4) one.
LAYOUTS = {
    "contiguous": lambda t: t[:3, :4].contiguous(),
    "sliced": lambda t: t[1:4, 2:6],
    "strided": lambda t: t[::2, ::2][:, :4],
    "transposed": lambda t: t[:4, :3].t(),
    "dense transposed": lambda t: t[:4, :3].contiguous().t(),
    "offset": lambda t: t.flatten()[5:17].view(3, 4),
}
SOURCES = {
    **LAYOUTS,
    "row": lambda t: t[1, :4],
    "column": lambda t: t[:3, 1:2],
    "expanded": lambda t: t[1, :4].expand(3, 4),
    "scalar": lambda t: t[1, 1],
}


def content(dtype: torch.dtype) -> torch.Tensor:
    base = torch.arange(54.0, dtype=torch.float64).view(6, 9) - 10
    return (base + 0.5j * base).to(dtype) if dtype.is_complex else base.abs().to(dtype)


def check(to: str, come: str, to_dtype, from_dtype, to_layout: str, from_layout: str) -> None:
    base = content(from_dtype)
    wanted_base = torch.zeros(6, 9, dtype=to_dtype)
    wanted = LAYOUTS[to_layout](wanted_base)
    wanted.copy_(SOURCES[from_layout](base))
    got_base = torch.zeros(6, 9, dtype=to_dtype, device=to)
    got = LAYOUTS[to_layout](got_base)
    got.copy_(SOURCES[from_layout](base.to(come)))
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(got_base.cpu(), wanted_base, rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("from_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("to_dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("to", "come"), DIRECTIONS)
def test_every_pair_of_dtypes(to: str, come: str, to_dtype, from_dtype) -> None:
    check(to, come, to_dtype, from_dtype, "sliced", "transposed")
    check(to, come, to_dtype, from_dtype, "contiguous", "contiguous")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(3, 200), (70, 1, 9), (5, 64), (5, 63), (2, 3, 5, 70)])
def test_a_value_that_fills_rows(sizes, dtype) -> None:
    column = content(dtype).flatten()[: sizes[0]] if sizes[0] < 54 else content(dtype).repeat(2, 1)
    column = column.flatten()[: sizes[0]].view(-1, *[1] * (len(sizes) - 1))
    wanted = column.expand(sizes).clone(memory_format=torch.contiguous_format)
    assert_same(column.to("loom").expand(sizes).contiguous(), wanted)
    turned = torch.zeros(sizes, dtype=dtype, device="loom").transpose(0, -1).contiguous()
    turned.transpose(0, -1).copy_(column.to("loom"))
    assert_same(turned.transpose(0, -1).contiguous(), wanted)


def test_a_value_that_fills_rows_is_part_of_a_program() -> None:
    x = torch.rand(10, 1, device="loom")
    torch.loom.synchronize()
    torch.loom.reset_fusion_report()
    with held():
        y = x.expand(10, 300).contiguous() * 2
    torch.loom.synchronize()
    assert [program.operators for program in torch.loom.fusion_report()] == [("copy_", "mul")]
    assert y[3, 200].item() == 2 * x[3, 0].item()


@pytest.mark.parametrize("from_layout", SOURCES)
@pytest.mark.parametrize("to_layout", LAYOUTS)
@pytest.mark.parametrize(("to", "come"), DIRECTIONS)
def test_every_pair_of_layouts(to: str, come: str, to_layout: str, from_layout: str) -> None:
    check(to, come, torch.float32, torch.float32, to_layout, from_layout)
    check(to, come, torch.int64, torch.int32, to_layout, from_layout)


@st.composite
def views(draw: st.DrawFn, sizes: tuple[int, ...]):
    """A function that makes a view of the sizes from a dense tensor: permuted and with steps."""
    order = draw(st.permutations(range(len(sizes))))
    steps = [draw(st.integers(1, 3)) for _ in sizes]
    return order, steps


def make_view(device: str, dtype: torch.dtype, sizes, order, steps) -> torch.Tensor:
    inner = [sizes[d] * steps[d] for d in order]
    count = int(torch.tensor(inner).prod()) if inner else 1
    base = (torch.arange(count, dtype=torch.float64) % 97).to(dtype).to(device).view(inner)
    back = [order.index(d) for d in range(len(sizes))]
    return base.permute(back)[tuple(slice(None, None, step) for step in steps)]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    data=st.data(), sizes=st.lists(st.integers(1, 5), max_size=6), way=st.sampled_from(DIRECTIONS)
)
def test_random_geometry(data: st.DataObject, sizes: list[int], way: tuple[str, str]) -> None:
    to, come = way
    dtype, other = data.draw(st.sampled_from(DTYPES[:10])), data.draw(st.sampled_from(DTYPES[:10]))
    target = data.draw(views(tuple(sizes)))
    broadcast = [data.draw(st.sampled_from([size, 1])) for size in sizes]
    source = data.draw(views(tuple(broadcast)))
    results = []
    for d, s in ((to, come), ("cpu", "cpu")):
        result = make_view(d, dtype, sizes, *target)
        result.copy_(make_view(s, other, broadcast, *source))
        results.append(result.cpu())
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


@pytest.mark.parametrize("numel", [16385, 1_000_003, 5_000_011])
@pytest.mark.parametrize(("to", "come"), DIRECTIONS)
def test_large_copies_at_odd_offsets(to: str, come: str, numel: int) -> None:
    base = torch.arange(numel + 3, dtype=torch.int32)
    target = torch.full((numel + 5,), -1, dtype=torch.int32, device=to)
    target[2:-3].copy_(base.to(come)[3:])
    result = target.cpu()
    assert torch.equal(result[2:-3], base[3:])
    assert result[:2].tolist() + result[-3:].tolist() == [-1] * 5


@pytest.mark.parametrize(("to", "come"), DIRECTIONS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)], ids=str)
def test_scalars_and_empty_tensors(shape: tuple[int, ...], to: str, come: str) -> None:
    source = torch.ones(shape).to(come)
    assert torch.zeros(shape, device=to).copy_(source).cpu().equal(torch.ones(shape))


# --- conjugate and negative views ------------------------------------------------------------


@pytest.mark.parametrize(("to", "come"), DIRECTIONS)
@pytest.mark.parametrize("to_conj", [False, True])
@pytest.mark.parametrize("from_conj", [False, True])
def test_conjugate_views(to: str, come: str, to_conj: bool, from_conj: bool) -> None:
    def run(to: str, come: str) -> torch.Tensor:
        base = torch.zeros(5, dtype=torch.complex64, device=to)
        source = (torch.arange(5.0) * (1 + 2j)).to(come)
        (base.conj() if to_conj else base).copy_(source.conj() if from_conj else source)
        return base.cpu()

    torch.testing.assert_close(run(to, come), run("cpu", "cpu"), rtol=0, atol=0)


@pytest.mark.parametrize(("to", "come"), DIRECTIONS)
def test_negative_views(to: str, come: str) -> None:
    source = torch.arange(5.0) * (1 + 2j)
    got = torch.zeros(5, device=to).copy_(source.to(come).conj().imag)
    assert got.tolist() == [0, -2, -4, -6, -8]
    target = torch.zeros(5, dtype=torch.complex64, device=to)
    target.conj().imag.copy_(torch.ones(5, device=come))
    assert target.tolist() == [-1j] * 5


def test_conjugate_view_to_host_and_back() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(x.conj().to("loom").cpu(), x.conj())
    assert torch.equal(x.to("loom").conj().cpu(), x.conj())
    assert torch.equal(x.to("loom").conj().clone().cpu(), x.conj())


# --- the other ways to say copy --------------------------------------------------------------


def test_to_returns_self_when_nothing_changes() -> None:
    x = torch.ones(3, device="loom")
    assert x.to("loom") is x
    assert x.to("loom", copy=True) is not x


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.to(torch.float64),
        lambda t: t.half(),
        lambda t: t.clone(),
        lambda t: t.t().clone(),
        lambda t: t.t().contiguous(),
        lambda t: t[:, ::2].clone(),
        lambda t: t.clone(memory_format=torch.contiguous_format),
        lambda t: t.expand(2, 4, 6).contiguous(),
        lambda t: t.view(1, 4, 2, 3).contiguous(memory_format=torch.channels_last),
        lambda t: t.type(torch.int32),
        lambda t: t.bool(),
    ],
)
def test_conversions_have_cpu_geometry(call) -> None:
    theirs = torch.arange(24.0).view(4, 6)
    assert_same(call(theirs.to("loom")), call(theirs))


def test_item_and_tolist() -> None:
    for dtype in DTYPES:
        x = content(dtype)
        assert x.to("loom")[1, 2].item() == x[1, 2].item()
        assert x.to("loom").tolist() == x.tolist()


def test_setitem_from_host_and_device() -> None:
    x = torch.zeros(3, 4, device="loom")
    x[1] = torch.arange(4.0)
    x[:, 0] = 7
    x[2, 1:] = torch.tensor([1.0, 2.0, 3.0], device="loom")
    assert x.tolist() == [[7, 0, 0, 0], [7, 1, 2, 3], [7, 1, 2, 3]]


def test_copy_is_differentiable() -> None:
    x = torch.arange(3.0, requires_grad=True)
    y = torch.zeros(2, 3, device="loom")
    y.copy_(x)
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0, 4, 8]


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.zeros(3, device=d).copy_(torch.zeros(4, device=d)),
        lambda d: torch.zeros(3, device=d).copy_(torch.zeros(2, 3, device=d)),
        lambda d: torch.zeros(3, device=d).copy_(torch.zeros(4)),
        lambda d: torch.zeros(1, device=d).expand(3).copy_(torch.zeros(3, device=d)),
        lambda d: torch.zeros(1, device=d).expand(3).copy_(torch.zeros(3)),
    ],
)
def test_errors_are_those_of_cpu(call) -> None:
    same_error(call)


def test_overlapping_source_and_destination_mean_what_they_do_on_cpu() -> None:
    def call(device: str) -> torch.Tensor:
        x = torch.arange(8.0, device=device)
        x[1:].copy_(x[:-1])
        return x

    same_error(call, "overlap|memory location")


# --- order: what runs ahead and what waits ---------------------------------------------------


def test_device_copy_runs_ahead() -> None:
    x = torch.ones(1000, device="loom")
    keep_busy()
    waits = torch.loom.host_waits()
    y = torch.zeros(1000, device="loom").copy_(x)
    z = y.double().t().contiguous()
    assert torch.loom.host_waits() == waits
    assert not torch.loom.current_stream().query()
    assert z.sum().item() == 1000


def test_source_may_change_after_a_small_host_copy_returned() -> None:
    host = torch.ones(1000)
    x = torch.zeros(1000, device="loom")
    keep_busy()
    x.copy_(host)
    host.fill_(5)
    assert not torch.loom.current_stream().query()
    assert x.sum().item() == 1000


def test_source_may_change_after_a_large_host_copy_returned() -> None:
    host = torch.ones(1_000_000)
    x = host.to("loom", non_blocking=True)  # pageable: the copy must wait or stage
    host.fill_(5)
    assert x.double().sum().item() == 1_000_000


def test_pinned_copy_to_device_runs_ahead() -> None:
    host = torch.ones(1_000_000).pin_memory()
    x = torch.zeros(1_000_000, device="loom")
    keep_busy()
    waits = torch.loom.host_waits()
    x.copy_(host, non_blocking=True)
    assert torch.loom.host_waits() == waits
    assert not torch.loom.current_stream().query()
    assert x.double().sum().item() == 1_000_000


def test_pinned_copy_to_host_runs_ahead() -> None:
    x = torch.ones(1_000_000, device="loom")
    host = torch.zeros(1_000_000).pin_memory()
    keep_busy()
    x.add_(1)
    host.copy_(x, non_blocking=True)
    assert not torch.loom.current_stream().query()
    assert host[-1].item() == 0
    torch.loom.synchronize()
    assert host.double().sum().item() == 2_000_000


def test_pinned_memory_is_not_reused_while_a_copy_reads_it() -> None:
    x = torch.zeros(1_000_000, device="loom")
    host = torch.ones(1_000_000).pin_memory()
    keep_busy()
    x.copy_(host, non_blocking=True)
    del host
    other = torch.empty(1_000_000, pin_memory=True).fill_(7)
    assert not torch.loom.current_stream().query()
    assert x.double().sum().item() == 1_000_000
    del other


def test_copy_to_host_waits_for_queued_work() -> None:
    x = torch.zeros(1000, device="loom")
    keep_busy()
    x.add_(1)
    assert x.cpu().sum().item() == 1000


# --- several devices -------------------------------------------------------------------------


def test_copies_between_devices(check) -> None:
    code = """
        import torch

        x = torch.arange(1_000_000, device="loom:0", dtype=torch.float32)
        y = x.to("loom:1")
        assert y.device.index == 1
        assert torch.equal(y.cpu(), x.cpu())
        z = torch.zeros(1000, 1000, device="loom:0", dtype=torch.float64)
        z.t().copy_(y.view(1000, 1000))
        assert torch.equal(z.cpu().t().float().flatten(), x.cpu())
        c = torch.ones(3, dtype=torch.complex64, device="loom:0").mul(1j).conj()
        assert c.to("loom:1").tolist() == [-1j] * 3
    """
    check(code, LOOM_DEVICES="2")


def test_copies_between_devices_wait_for_both_streams(check) -> None:
    code = """
        import torch

        def busy(device):
            m = torch.full((1024, 1024), 1e-3, device=device)
            for _ in range(30):
                m = m @ m

        x = torch.zeros(1000, device="loom:0")
        y = torch.zeros(1000, device="loom:1")
        busy("loom:0")
        x.add_(1)
        busy("loom:1")
        y.add_(1).mul_(100)
        waits = torch.loom.host_waits()
        y.copy_(x)
        x.zero_()
        y.add_(1)
        assert torch.loom.host_waits() == waits
        assert y.sum().item() == 2000, y
    """
    check(code, LOOM_DEVICES="2")


def test_operands_on_two_devices_are_an_error(check) -> None:
    code = """
        import torch

        try:
            torch.ones(3, device="loom:0") + torch.ones(3, device="loom:1")
        except RuntimeError as error:
            print(error)
    """
    assert "same device" in check(code, LOOM_DEVICES="2").out


@pytest.mark.parametrize("numel", [8, 16384, 16385])
def test_copies_from_pinned_memory_come_in_order(numel: int) -> None:
    """Also those that do not wait for the device: a queued command has yet to write the memory."""
    x = torch.full((numel,), 5.0, device="loom")
    pinned = torch.zeros(numel, pin_memory=True)
    torch.loom.synchronize()
    keep_busy()
    pinned.copy_(x, non_blocking=True)
    assert torch.equal(pinned.to("loom").cpu(), x.cpu())
