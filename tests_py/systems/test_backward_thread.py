# SPDX-License-Identifier: BSD-3-Clause
"""Backward runs on the thread that calls it, with PyTorch's switch to choose otherwise."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import set_multithreading_enabled
from torch.utils.checkpoint import checkpoint

BOTH = pytest.mark.parametrize("own_thread", [False, True], ids=["caller", "device thread"])


def in_a_thread(function: Callable[[], Any]) -> Any:
    """What the function returns, or raises, in a thread that has not used anything yet."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def graph(device: str = "loom") -> tuple[torch.Tensor, list[int]]:
    """A result whose backward notes the threads that it runs on."""
    threads: list[int] = []
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: threads.append(threading.get_ident()))
    return y * 3, threads


def on_this_thread(
    y: torch.Tensor, threads: list[int], gradient: torch.Tensor | None = None
) -> bool:
    y.backward(torch.ones_like(y) if gradient is None else gradient)
    return threads == [threading.get_ident()]


# --- which thread ------------------------------------------------------------------------------


def test_the_caller() -> None:
    assert on_this_thread(*graph())
    assert in_a_thread(lambda: on_this_thread(*graph()))


def test_a_thread_that_uses_loom_for_backward_only() -> None:
    (y, threads), gradient = graph(), torch.ones(3, device="loom")

    def twice() -> bool:
        # The engine has looked at the switch when the first one asks for the thread's stream.
        y.backward(gradient, retain_graph=True)
        threads.clear()
        return on_this_thread(y, threads, gradient)

    assert in_a_thread(twice)


def test_who_asks_for_autograds_threads_gets_them() -> None:
    with set_multithreading_enabled(True):
        assert not on_this_thread(*graph())
    assert on_this_thread(*graph())


def test_a_choice_before_the_first_use_of_a_thread() -> None:
    def first_use() -> bool:
        set_multithreading_enabled(True)
        return on_this_thread(*graph())

    assert not in_a_thread(first_use)


def test_threads_that_do_not_use_loom_stay_as_they_are() -> None:
    def on_cpu() -> bool:
        assert on_this_thread(*graph("cpu"))
        return torch.autograd.is_multithreading_enabled()

    assert in_a_thread(on_cpu)


@pytest.mark.parametrize(("choice", "expected"), [("caller", True), ("device", False)])
def test_the_variable(choice: str, expected: bool, check) -> None:
    done = check(
        """
        import threading, torch
        x = torch.ones(3, device="loom", requires_grad=True)
        threads = []
        x.register_hook(lambda gradient: threads.append(threading.get_ident()))
        (x * 2).sum().backward()
        print(threads == [threading.get_ident()], x.grad.tolist())
        """,
        LOOM_BACKWARD_THREAD=choice,
    )
    assert done.out.split() == [str(expected), "[2.0,", "2.0,", "2.0]"]


# --- what a backward does, on either thread ----------------------------------------------------


@BOTH
def test_streams_of_the_forward(own_thread: bool) -> None:
    side = torch.loom.Stream()
    streams = []
    x = torch.ones(1000, device="loom", requires_grad=True)
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        y = x * 2
        y.register_hook(lambda gradient: streams.append(torch.loom.current_stream()))
        y = y.exp()
    torch.loom.current_stream().wait_stream(side)
    before = torch.loom.current_stream()
    with set_multithreading_enabled(own_thread):
        y.sum().backward()
    assert streams == [side]
    assert torch.loom.current_stream() == before
    torch.testing.assert_close(x.grad.cpu(), 2 * torch.full((1000,), 2.0).exp())


@BOTH
def test_several_devices(own_thread: bool) -> None:
    devices = []
    x = torch.ones(5, device="loom:0", requires_grad=True)
    y = (x * 2).to("loom:1")
    y.register_hook(lambda gradient: devices.append(str(gradient.device)))
    z = (y * 3).to("loom:0") + x
    torch.loom.set_device(1)
    try:
        with set_multithreading_enabled(own_thread):
            z.sum().backward()
        assert torch.loom.current_device() == 1
    finally:
        torch.loom.set_device(0)
    assert devices == ["loom:1"]
    assert x.grad.device == torch.device("loom:0")
    assert x.grad.tolist() == [7.0] * 5


class Again(torch.autograd.Function):
    """Whose backward runs another one, which runs another one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, depth: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.depth = depth
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.depth > 0:
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                Again.apply(x, ctx.depth - 1).sum().backward()
            return x.grad * gradient, None
        return gradient * 2, None


@BOTH
@pytest.mark.parametrize("depth", [1, 150])  # deeper than the engine lets one thread go
def test_backward_in_a_backward(depth: int, own_thread: bool) -> None:
    x = torch.ones(3, device="loom", requires_grad=True)
    with set_multithreading_enabled(own_thread):
        Again.apply(x, depth).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


@BOTH
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_in_checkpoints(reentrant: bool, own_thread: bool) -> None:
    layer = torch.nn.Linear(8, 8).to("loom")

    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(layer(x))

    def outer(x: torch.Tensor) -> torch.Tensor:
        return layer(checkpoint(inner, x, use_reentrant=reentrant))

    gradients = []
    for run in (outer, lambda x: checkpoint(outer, x, use_reentrant=reentrant)):
        x = torch.ones(4, 8, device="loom", requires_grad=True)
        layer.zero_grad()
        with set_multithreading_enabled(own_thread):
            run(x).sum().backward()
        gradients.append((x.grad.cpu(), layer.weight.grad.cpu()))
    torch.testing.assert_close(gradients[0], gradients[1])


@BOTH
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
@pytest.mark.filterwarnings("ignore:Error detected in MulBackward0:UserWarning")
def test_anomaly_mode(own_thread: bool) -> None:
    x = torch.zeros(3, device="loom", requires_grad=True)
    with torch.autograd.detect_anomaly(), set_multithreading_enabled(own_thread):
        y = (x * float("inf")).sum()
        with pytest.raises(RuntimeError, match="'MulBackward0' returned nan values"):
            (y * 0).backward()


@BOTH
def test_an_error_of_a_hook_is_the_callers(own_thread: bool) -> None:
    class OwnError(Exception):
        pass

    def refuse(gradient: torch.Tensor) -> None:
        raise OwnError("no")

    x = torch.ones(3, device="loom", requires_grad=True)
    y = x * 2
    y.register_hook(refuse)
    with set_multithreading_enabled(own_thread):
        with pytest.raises(OwnError):
            (y * 2).sum().backward()
        (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3


@BOTH
def test_settings_of_the_caller(own_thread: bool) -> None:
    seen = []
    x = torch.ones(3, device="loom", requires_grad=True)
    x.register_hook(lambda gradient: seen.append(torch.is_grad_enabled()))
    with set_multithreading_enabled(own_thread):
        torch.autograd.grad((x**3).sum(), x, create_graph=True)
        torch.autograd.grad((x**3).sum(), x)
    assert seen == [True, False]


@BOTH
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled_autograd(own_thread: bool) -> None:
    from torch._dynamo import compiled_autograd

    gradients = []
    for compiled in (False, True):
        x = torch.linspace(0, 1, 6, device="loom").view(2, 3).requires_grad_()
        y = torch.sin(x).mm(x.t()).relu().sum()
        with set_multithreading_enabled(own_thread):
            if compiled:
                with compiled_autograd._enable(lambda module: module):
                    y.backward()
            else:
                y.backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


@BOTH
def test_threads_beside_one_another(own_thread: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 16, dtype=torch.float64)
    inputs = [torch.randn(8, 16, dtype=torch.float64) for _ in range(6)]

    def gradients(device: str, x: torch.Tensor) -> list[torch.Tensor]:
        own = weight.to(device, copy=True).requires_grad_()
        results = []
        for _ in range(20):
            own.grad = None
            y = x.to(device)
            for _ in range(4):
                y = torch.tanh(y @ own)
            y.sum().backward()
            results.append(own.grad.cpu())
        return results

    expected = [gradients("cpu", x)[0] for x in inputs]
    found: dict[int, list[torch.Tensor]] = {}

    def work(number: int) -> None:
        with set_multithreading_enabled(own_thread):
            found[number] = gradients("loom", inputs[number])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, reference in enumerate(expected):
        for each in found[number]:
            torch.testing.assert_close(each, reference)
