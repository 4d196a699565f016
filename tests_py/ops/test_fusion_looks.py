# SPDX-License-Identifier: BSD-3-Clause
"""Fused programs: whoever may look at results finds them there, and memory is given back."""

import threading

import pytest
import torch
from ops_support import busy, keep_busy, layer_norm, numbers, softmax

from support.program_checks import far_apart

LOOKS = {
    "item": lambda t: t[3, 5].item(),
    "copy to host": lambda t: t.cpu()[3, 5].item(),
    "matrix product": lambda t: (t @ torch.eye(8, device="loom"))[3, 5].item(),
    "index": lambda t: t[torch.tensor([3], device="loom"), 5].item(),
    "python number": lambda t: float(t[3, 5]),
    "list": lambda t: t.tolist()[3][5],
    "text": lambda t: float(repr(t.flatten()[29]).split("(")[1].split(",")[0]),
    "any": lambda t: 1.0 * int((t == 2.5).all()) + 1.5,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=list(LOOKS))
def test_results_are_there_for_whoever_looks(look):
    x = torch.ones(4, 8, device="loom")
    busy()
    assert look((x * 3).sub_(0.5)) == 2.5


def test_results_are_there_for_another_stream():
    other = torch.loom.Stream()
    x = torch.ones(100, device="loom")
    busy()
    y = x * 3 - 0.5
    other.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(other):
        assert (y * 2).cpu().tolist() == [5.0] * 100


def test_an_event_comes_after_what_was_recorded_before_it():
    x, event = torch.ones(100, device="loom"), torch.loom.Event()
    busy()
    y = x * 3
    event.record()
    x.add_(1)
    event.synchronize()
    assert y.cpu().tolist() == [3.0] * 100
    assert x.cpu().tolist() == [2.0] * 100


def test_each_device_has_programs_of_its_own():
    tensors = [torch.ones(64, device=f"loom:{n}") for n in range(2)]
    for _ in range(20):
        tensors = [t * 1.5 - 0.5 for t in tensors]
    assert tensors[0].cpu().tolist() == tensors[1].cpu().tolist() == [1.0] * 64


def test_memory_is_given_back_while_a_program_is_open():
    x = torch.ones(3000, device="loom")
    keep_busy()
    for _ in range(5):
        y = x * 2
        z = y + 1
        del y
        torch.loom.empty_cache()
        x = z - 2
    assert x.cpu().tolist() == [1.0] * 3000


def test_memory_that_is_reused_for_another_shape():
    x = torch.arange(4096.0, device="loom")
    busy()
    y = x * 2
    del y
    z = (x[:4000] + 1).view(40, 100)  # the memory of y, in another program
    w = z.t() * 2
    del z
    v = x - 1
    assert w.cpu().equal((torch.arange(4000.0).view(40, 100).t() + 1) * 2)
    assert v.cpu().equal(torch.arange(4096.0) - 1)


def test_results_that_are_dropped_do_not_change_what_they_were_made_from():
    x = torch.ones(100, device="loom")
    busy()
    for _ in range(50):
        (x * 2).exp_().add_(x)
    assert x.cpu().tolist() == [1.0] * 100


def test_host_memory_may_change_once_a_copy_of_it_has_returned():
    host = torch.ones(100)
    busy()
    x = host.to("loom") * 2
    host.zero_()
    assert (x + host.to("loom")).cpu().tolist() == [2.0] * 100


def test_two_threads_that_record_on_one_stream():
    x = numbers(50, 60)
    expected = layer_norm(softmax(x.clone() * 2))
    results: list[torch.Tensor] = []

    def work():
        for _ in range(30):
            results.append(layer_norm(softmax(x.to("loom") * 2)).cpu())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 60
    assert all(result.equal(results[0]) for result in results)
    assert not far_apart(results[0], expected, 100.0)


def test_a_thread_reads_what_another_one_records():
    x = torch.ones(1000, device="loom")
    busy()
    x.mul_(2)
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append((x + 1)[7].item()))
    thread.start()
    thread.join()
    assert seen == [3.0]
