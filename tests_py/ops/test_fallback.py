# SPDX-License-Identifier: BSD-3-Clause
"""The zero-copy fallback: any cpu operator works on loom tensors, on their own memory."""

from collections.abc import Iterator

import pytest
import torch
from ops_support import assert_same, keep_busy, same_error

# Operators that exist on cpu only, so that the fallback runs them whatever gets kernels later.
LIBRARY = torch.library.Library("loom_fallback", "DEF")
SEEN: list[torch.Tensor] = []


def define(schema: str):
    LIBRARY.define(schema)

    def register(function):
        LIBRARY.impl(schema.split("(")[0], function, "CPU")
        return getattr(torch.ops.loom_fallback, schema.split("(")[0])

    return register


@define("double(Tensor x) -> Tensor")
def double(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(x)
    return x * 2


@define("rest(Tensor(a) x) -> Tensor(a)")
def rest(x: torch.Tensor) -> torch.Tensor:
    return x[1:]


@define("itself(Tensor(a!) x) -> Tensor(a!)")
def itself(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


@define("secretly_increment(Tensor x) -> Tensor")
def secretly_increment(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.sum()


@define("resize_out(Tensor x, int n, *, Tensor(a!) out) -> Tensor(a!)")
def resize_out(x: torch.Tensor, n: int, *, out: torch.Tensor) -> torch.Tensor:
    out.resize_(n)
    return out.copy_(x.flatten()[0].expand(n))


@define("reverse_all(Tensor[] xs, Tensor?[] ys, Tensor? z=None) -> Tensor[]")
def reverse_all(xs, ys, z=None):
    extra = [] if z is None else [z + 0]
    return [x.flip(0) for x in xs] + [y.flip(0) for y in ys if y is not None] + extra


@define("two_views(Tensor(a) x) -> (Tensor(a), Tensor(a))")
def two_views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:1], x[1:]


@define("swap_storage(Tensor(a!) x) -> ()")
def swap_storage(x: torch.Tensor) -> None:
    x.set_(torch.arange(8.0))


@define("conjugate_lazily(Tensor(a!) x) -> Tensor(a!)")
def conjugate_lazily(x: torch.Tensor) -> torch.Tensor:
    torch._C._set_conj(x, not x.is_conj())
    return x


@define("fails(Tensor x, str kind) -> Tensor")
def fails(x: torch.Tensor, kind: str) -> torch.Tensor:
    raise {"value": ValueError, "index": IndexError, "type": TypeError}[kind]("as on cpu")


@pytest.fixture(autouse=True)
def _fresh_report() -> Iterator[None]:
    torch.loom.reset_fallbacks()
    yield
    SEEN.clear()


# --- what the cpu operator sees, and what comes back -----------------------------------------


def test_operator_sees_cpu_tensor_with_same_geometry() -> None:
    x = torch.arange(24.0, device="loom").view(4, 6)[1:, ::2].t()
    assert_same(double(x), double(x.cpu().clone()))
    seen = SEEN[0]
    assert (seen.device.type, seen.size(), seen.stride(), seen.storage_offset()) == (
        "cpu",
        x.size(),
        x.stride(),
        x.storage_offset(),
    )


def test_result_is_device_memory_of_the_operators_own_allocation() -> None:
    x = torch.ones(1 << 20, device="loom")
    before = torch.loom.memory_allocated()
    y = double(x)
    assert torch.loom.memory_allocated() - before == y.nbytes
    del y
    assert torch.loom.memory_allocated() == before


def test_temporaries_of_the_operator_are_given_back() -> None:
    x = torch.rand(256, 256, device="loom")
    torch.linalg.svdvals(x)
    before = torch.loom.memory_allocated()
    for _ in range(3):
        torch.linalg.svdvals(x)
    assert torch.loom.memory_allocated() == before


def test_view_result_aliases_its_argument() -> None:
    x = torch.zeros(4, device="loom")
    y = rest(x)
    assert y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert y.storage_offset() == 1
    y.fill_(5)
    x[0] = 7
    assert x.tolist() == [7, 5, 5, 5]
    assert y.tolist() == [5, 5, 5]


def test_two_views_share_one_storage() -> None:
    x = torch.arange(3.0, device="loom")
    a, b = two_views(x)
    b.add_(10)
    assert a.tolist() == [0]
    assert x.tolist() == [0, 11, 12]


def test_in_place_operator_returns_the_tensor_it_was_given() -> None:
    x = torch.zeros(3, device="loom")
    assert itself(x) is x
    assert x.tolist() == [1, 1, 1]


def test_write_that_the_schema_does_not_declare_is_kept() -> None:
    x = torch.zeros(3, device="loom")
    assert secretly_increment(x).item() == 3
    assert x.tolist() == [1, 1, 1]


def test_batch_norm_updates_running_statistics() -> None:
    x = torch.rand(8, 3, 5)
    mean = {d: torch.zeros(3, device=d) for d in ("cpu", "loom")}
    var = {d: torch.ones(3, device=d) for d in ("cpu", "loom")}
    for device in ("cpu", "loom"):
        torch.native_batch_norm(
            x.to(device), None, None, mean[device], var[device], True, 0.1, 1e-5
        )
    torch.testing.assert_close(mean["loom"].cpu(), mean["cpu"])
    torch.testing.assert_close(var["loom"].cpu(), var["cpu"])


@pytest.mark.parametrize("size", [0, 2, 5, 1000])
def test_out_tensor_is_resized_and_stays_the_same_tensor(size: int) -> None:
    x = torch.full((2,), 3.0, device="loom")
    out = torch.zeros(5, device="loom")
    assert resize_out(x, size, out=out) is out
    assert out.tolist() == [3.0] * size
    out.add_(1)
    assert out.tolist() == [4.0] * size


def test_resized_out_is_seen_by_views_of_its_storage() -> None:
    out = torch.zeros(2, device="loom")
    storage = out.untyped_storage()
    resize_out(torch.ones(1, device="loom"), 100, out=out)
    assert storage.data_ptr() == out.untyped_storage().data_ptr()
    assert storage.nbytes() == 400


def test_replaced_storage_comes_back() -> None:
    x = torch.zeros(2, device="loom")
    swap_storage(x)
    assert x.tolist() == list(range(8))


def test_conjugate_bit_that_the_operator_sets_comes_back() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j])
    got, wanted = x.to("loom"), x.clone()
    assert conjugate_lazily(got) is got
    assert torch.equal(got.cpu(), conjugate_lazily(wanted))
    lu, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64))
    right = torch.randn(4, 3, dtype=torch.complex64)
    on_loom = torch.linalg.lu_solve(*(t.to("loom") for t in (lu, pivots, right)), left=False)
    torch.testing.assert_close(on_loom.cpu(), torch.linalg.lu_solve(lu, pivots, right, left=False))


def test_operator_sees_whether_a_gradient_is_wanted() -> None:
    x = torch.ones(2, device="loom")
    for wanted in (False, True):
        double(x.requires_grad_(wanted))
    assert [seen.requires_grad for seen in SEEN] == [False, True]


def test_out_of_an_operator_that_knows_devices_by_name() -> None:
    x = torch.tensor([1.0, 2.0, 2.0], device="loom")
    out = torch.empty(0, device="loom"), torch.empty(0, dtype=torch.int64, device="loom")
    torch.mode(x, out=out)
    assert out[0].item() == 2


def test_lists_and_optional_tensors_go_in_and_out() -> None:
    xs = [torch.arange(3.0, device="loom"), torch.arange(2, device="loom")]
    ys = [None, torch.arange(4.0, device="loom")]
    got = reverse_all(xs, ys)
    assert [y.tolist() for y in got] == [[2, 1, 0], [1, 0], [3, 2, 1, 0]]
    assert {y.device.type for y in got} == {"loom"}
    assert len(reverse_all(xs, ys, xs[0])) == 4


def test_same_tensor_twice_stays_one_tensor() -> None:
    x = torch.arange(3.0, device="loom")
    first, second = reverse_all([x, x], [])
    assert first.tolist() == second.tolist() == [2, 1, 0]


@pytest.mark.parametrize("view", ["conj", "neg", "real", "imag"])
def test_conjugate_and_negative_views_mean_what_they_say(view: str) -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    make = {
        "conj": lambda t: t.conj(),
        "neg": lambda t: t.conj().imag,
        "real": lambda t: t.conj().real,
        "imag": lambda t: t.imag,
    }[view]
    torch.testing.assert_close(double(make(x.to("loom"))).cpu(), double(make(x)))


def test_empty_tensors() -> None:
    assert_same(double(torch.empty(0, 3, device="loom")), torch.empty(0, 3))


def test_cpu_scalar_beside_device_tensor() -> None:
    x = torch.arange(4.0, device="loom")
    assert torch.atan2(x, torch.tensor(2.0)).device.type == "loom"


# --- order -----------------------------------------------------------------------------------


def test_waits_for_queued_work_on_its_operands() -> None:
    x = torch.zeros(1000, device="loom")
    keep_busy()
    x.add_(1)
    assert double(x).sum().item() == 2000


def test_result_is_ready_for_another_stream() -> None:
    x = torch.ones(1000, device="loom")
    keep_busy()
    y = double(x)
    with torch.loom.stream(torch.loom.Stream()):
        assert y.sum().item() == 2000


# --- gradients -------------------------------------------------------------------------------


def test_gradient_flows_through_fallbacks() -> None:
    x = torch.rand(4, 4)
    grads = {}
    for device in ("cpu", "loom"):
        leaf = x.to(device, copy=True).requires_grad_()
        torch.linalg.inv(leaf + 2 * torch.eye(4, device=device)).cumsum(0).sum().backward()
        grads[device] = leaf.grad
    torch.testing.assert_close(grads["loom"].cpu(), grads["cpu"])


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["value", "index", "type"])
def test_python_error_of_the_operator_comes_through(kind: str) -> None:
    same_error(lambda device: fails(torch.ones(1, device=device), kind), "as on cpu")


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.linalg.inv(torch.zeros(2, 2, device=d)),
        lambda d: torch.linalg.cholesky(-torch.eye(2, device=d)),
        lambda d: torch.cumsum(torch.ones(2, device=d), 3),
        lambda d: torch.kthvalue(torch.ones(2, device=d), 5),
        lambda d: torch.searchsorted(torch.ones(2, 2, device=d), torch.ones(3, 2, device=d)),
        lambda d: torch.bincount(torch.tensor([-1], device=d)),
        lambda d: torch.cholesky_solve(torch.ones(2, device=d), torch.ones(2, 2, device=d)),
    ],
)
def test_errors_are_those_of_cpu(call) -> None:
    same_error(call)


def test_device_works_on_after_an_error() -> None:
    x = torch.ones(2, device="loom")
    with pytest.raises(ValueError, match="as on cpu"):
        fails(x, "value")
    assert double(x).tolist() == [2, 2]


def test_host_tensor_beside_device_tensor_is_refused() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.cdist(torch.ones(2, 2, device="loom"), torch.ones(2, 2))


# --- the report ------------------------------------------------------------------------------


def test_report_says_how_often_how_long_and_from_where() -> None:
    x = torch.ones(3, device="loom")
    for _ in range(3):
        double(x)  # here
    report = torch.loom.fallbacks()
    entry = report["loom_fallback::double"]
    assert entry.count == 3
    assert 0 < entry.seconds < 60
    (place,) = entry.callers
    file, line = place.rsplit(":", 1)
    assert file.endswith("test_fallback.py")
    with open(file) as source:  # noqa: PTH123
        assert "double(x)  # here" in source.read().splitlines()[int(line) - 1]


def test_native_operators_are_not_in_the_report() -> None:
    x = torch.zeros(3, 3, device="loom")
    (x.t() + 1).mul_(2).copy_(x).sum().item()
    assert torch.loom.fallbacks() == {}


def test_reset_forgets() -> None:
    double(torch.ones(3, device="loom"))
    torch.loom.reset_fallbacks()
    assert torch.loom.fallbacks() == {}


def test_option_error_forbids_fallbacks(check) -> None:
    code = """
        import torch

        x = torch.ones(3, device="loom")
        assert (x + 1).tolist() == [2, 2, 2]
        try:
            x.to_sparse()
        except NotImplementedError as error:
            print(error)
    """
    assert "LOOM_FALLBACK=error" in check(code, LOOM_FALLBACK="error").out


def test_option_warn_warns(check) -> None:
    code = """
        import torch

        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.ones(3, device="loom").to_sparse()
        print(caught[0].message)
    """
    assert "to_sparse" in check(code, LOOM_FALLBACK="warn").out
