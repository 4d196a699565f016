# SPDX-License-Identifier: BSD-3-Clause
"""Warnings of operators: Python's filters see them at the call, or when values are waited for."""

import threading
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional

Compute = Callable[[str], object]


@pytest.fixture(autouse=True)
def every_time() -> Iterator[None]:
    """What PyTorch warns of once in a process it warns of whenever it happens."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def _into_other_sizes(device: str) -> torch.Tensor:
    return torch.add(torch.ones(3, device=device), 1, out=torch.ones(2, device=device))


def _bytes(device: str) -> torch.Tensor:
    return torch.tensor([1, 0, 1], dtype=torch.uint8, device=device)


WARNING: dict[str, Compute] = {
    "std of one": lambda device: torch.ones(1, device=device).std(),
    "variances of rows of one": lambda device: torch.ones(4, 1, device=device).var(dim=1),
    "var and mean of one": lambda device: torch.var_mean(torch.ones(1, device=device)),
    "covariance of one": lambda device: torch.cov(torch.ones(2, 1, device=device)),
    "out of other sizes": _into_other_sizes,
    "reduction into other sizes": lambda device: torch.sum(
        torch.ones(3, 4, device=device), 1, out=torch.ones(5, device=device)
    ),
    "index_select into other sizes": lambda device: torch.index_select(
        torch.ones(3, device=device),
        0,
        torch.tensor([1], device=device),
        out=torch.ones(2, device=device),
    ),
    "selection by bytes": lambda device: torch.ones(3, device=device)[_bytes(device)],
    "where of bytes": lambda device: torch.where(_bytes(device), 1.0, 2.0),
    "complex to real": lambda device: torch.ones(3, dtype=torch.complex64, device=device).float(),
    "complex into real": lambda device: torch.ones(3, device=device).copy_(
        torch.ones(3, dtype=torch.complex64, device=device)
    ),
    "complex half": lambda device: torch.ones(3, dtype=torch.complex32, device=device),
    "empty complex half": lambda device: torch.empty_strided(
        (2, 2), (1, 2), dtype=torch.complex32, device=device
    ),
    "searchsorted in gaps": lambda device: torch.searchsorted(
        torch.arange(4.0, device=device), torch.ones(4, 4, device=device).t()[:, 1:]
    ),
    "transposed volume": lambda device: torch.ones(1, 2, 3, device=device).T,
    "index_reduce": lambda device: torch.ones(3, device=device).index_reduce_(
        0, torch.tensor([0], device=device), torch.ones(1, device=device), "prod"
    ),
    "triangular_solve": lambda device: torch.triangular_solve(
        torch.ones(2, 1, device=device), torch.eye(2, device=device)
    ),
    "sparse rows": lambda device: torch.eye(2, device=device).to_sparse_csr(),
    "random numbers beyond the dtype": lambda device: torch.ones(3, device=device).random_(
        0, 2**24 + 2
    ),
    "loss of other sizes": lambda device: functional.mse_loss(
        torch.ones(3, device=device), torch.ones(2, 3, device=device)
    ),
}

if hasattr(torch.ops.aten, "cholesky"):  # before torch 2.14
    WARNING["cholesky"] = lambda device: torch.cholesky(torch.eye(2, device=device))
    WARNING["qr"] = lambda device: torch.qr(torch.eye(2, device=device))


def _text(message: object) -> str:
    return str(message).partition(" (Triggered internally")[0].replace("loom", "cpu")


def _run(compute: Compute, device: str) -> None:
    result = compute(device)
    torch.loom.synchronize()
    del result


def _warnings_of(compute: Compute, device: str) -> list[tuple[type[Warning], str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _run(compute, device)
    return [(each.category, _text(each.message)) for each in caught]


@pytest.mark.parametrize("name", WARNING)
def test_is_that_of_cpu(name: str) -> None:
    compute = WARNING[name]
    expected = _warnings_of(compute, "cpu")
    assert expected
    # A sparse tensor may be made in parts, with a warning for each while PyTorch warns every time.
    assert set(_warnings_of(compute, "loom")) == set(expected)


LATE = "Casting complex values to real discards the imaginary part"


def _cast() -> torch.Tensor:
    """Warn on a worker: of what is found when the values are computed."""
    return torch.ones(3, dtype=torch.complex64, device="loom").float()


@pytest.mark.parametrize("name", WARNING)
def test_an_error_filter_makes_an_exception_of_it_and_loom_works_afterwards(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for device in ("cpu", "loom"):
            with pytest.raises(UserWarning):
                _run(WARNING[name], device)
        torch.loom.synchronize()
    assert torch.ones(3, device="loom").sum().item() == 3


WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda tensor: tensor[0].item(),
    "tolist": lambda tensor: tensor.tolist(),
    "cpu": lambda tensor: tensor.cpu(),
    "print": repr,
    "nonzero": torch.nonzero,
    "device": lambda _: torch.loom.synchronize(),
    "accelerator": lambda _: torch.accelerator.synchronize(),
    "stream": lambda _: torch.loom.current_stream().synchronize(),
    "event": lambda _: torch.loom.current_stream().record_event().synchronize(),
}


@pytest.mark.parametrize("name", WAITS)
def test_is_given_by_the_wait_for_the_values(name: str) -> None:
    tensor = _cast()
    with pytest.warns(UserWarning, match=LATE):
        WAITS[name](tensor)
    WAITS[name](tensor)  # once


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_that_raises_it_can_be_made_again(name: str) -> None:
    tensor = _cast()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=LATE):
            WAITS[name](tensor)
        WAITS[name](tensor)
    assert tensor.tolist() == [1, 1, 1]


def test_names_the_line_that_waits() -> None:
    tensor = _cast()
    with pytest.warns(UserWarning, match=LATE) as caught:
        tensor.tolist()
    assert caught[0].filename == __file__


def test_what_many_commands_warn_of_is_given_once() -> None:
    kept = [_cast() for _ in range(100)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.loom.synchronize()
    assert len(caught) == 1
    assert len(kept) == 100


def test_a_filter_that_ignores_it_is_asked() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("ignore", message=LATE)
        assert _cast().tolist() == [1, 1, 1]
    assert not caught


def test_is_given_to_the_caller_of_a_backward_pass() -> None:
    class Cast(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor * 2

        @staticmethod
        def backward(ctx, gradient):
            (gradient * 1j).float().tolist()
            return gradient

    y = torch.ones(3, device="loom", requires_grad=True)
    with pytest.warns(UserWarning, match=LATE):
        Cast.apply(y).sum().backward()


def test_comes_from_whichever_thread_waits() -> None:
    tensor = _cast()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            tensor.tolist()
        except UserWarning as warning:
            failures.append(warning)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert len(failures) == 1
    torch.loom.synchronize()


def test_a_graph_warns_at_its_replays() -> None:
    graph = torch.loom.Graph()
    values = torch.ones(3, dtype=torch.complex64, device="loom")
    with torch.loom.graph(graph):
        values.float()
    for _ in range(2):
        graph.replay()
        with pytest.warns(UserWarning, match=LATE):
            torch.loom.synchronize()


def test_nothing_goes_to_stderr_but_by_the_filters(check) -> None:
    source = """
        import sys, torch, warnings
        if sys.argv[1] == "ignored":
            warnings.simplefilter("ignore")
        x = torch.ones(3, dtype=torch.complex64, device="loom").float()
        event = torch.loom.current_stream().record_event()
        while not event.query():
            pass
    """
    assert check(source, "ignored").err == ""
    assert LATE in check(source, "shown").err
