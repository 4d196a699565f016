# SPDX-License-Identifier: BSD-3-Clause
"""The context: what it refuses, how it nests, and that nothing is left of it."""

import os
import sys
import threading

import pytest
import torch
import torch._dynamo
import torch.utils.cpp_extension
from torch.cuda import Stream, device_count, is_available, memory_allocated, synchronize

import torch_loom
from torch_loom import _loader
from torch_loom.cuda_names import context, table
from torch_loom.cuda_names.changes import Changes

pytestmark = pytest.mark.usefixtures("loom_names")


def _attributes():
    """Every attribute of torch's modules and of classes that hooks touch, by identity."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and hasattr(module, "__dict__"):
            found |= {(name, key): id(value) for key, value in vars(module).items()}
    for cls in (
        torch.Tensor,
        torch.library.Library,
        torch.loom.Stream,
        torch.autograd.profiler.profile,
        torch.autograd.profiler_util.FunctionEvent,
        torch.distributed.distributed_c10d.BackendConfig,
    ):
        found |= {(cls, key): id(value) for key, value in vars(cls).items()}
    backend = torch.distributed.distributed_c10d.Backend
    found |= {("backends", key): value for key, value in backend.default_device_backend_map.items()}
    found |= {("types", key): value for key, value in backend.backend_type_map.items()}
    found |= {("environment", key): value for key, value in os.environ.items()}
    found |= {("importers", i): id(value) for i, value in enumerate(sys.meta_path)}
    return found


def _changed(before, after):
    """The attributes that differ, but for what Dynamo counts when it forgets its graphs."""
    return {
        key
        for key in before | after
        if before.get(key) != after.get(key) and not str(key[1]).endswith("_COUNTER")
    }


def test_everything_is_as_before_afterwards():
    with torch_loom.as_cuda():  # what is made once, at first use
        pass
    torch._dynamo.reset()
    before = _attributes()
    with torch_loom.as_cuda():
        torch.ones(1, device="cuda").sum().item()
        inside = _attributes()
    after = _attributes()
    assert _changed(before, after) == set()
    assert len(_changed(before, inside)) > 100


def test_names_mean_cuda_outside():
    with torch_loom.as_cuda():
        x = torch.ones(2, device="cuda", requires_grad=True)
    assert str(x.device) == "loom:0"
    assert not x.is_cuda
    assert (x * 2).sum().item() == 4
    assert not torch.cuda.is_available()
    with pytest.raises(AssertionError, match="CUDA"):
        torch.ones(1, device="cuda")
    assert torch.get_autocast_dtype("loom") == torch.bfloat16


def test_contexts_nest():
    with torch_loom.as_cuda():
        with torch_loom.as_cuda():
            assert torch.cuda.is_available()
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available()


def test_an_exception_ends_the_context():
    @torch_loom.as_cuda()
    def fail():
        assert torch.cuda.is_available()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not torch.cuda.is_available()


def test_contexts_of_threads_are_counted_together():
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with torch_loom.as_cuda():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(60)
    assert torch.cuda.is_available()
    with torch_loom.as_cuda():
        leave.set()
        thread.join()
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available()


def test_threads_enter_and_leave_beside_each_other():
    problems = []

    def run():
        try:
            for _ in range(5):
                with torch_loom.as_cuda():
                    assert torch.ones(2, device="cuda").is_cuda
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert not torch.cuda.is_available()


def test_a_function_is_decorated():
    @torch_loom.as_cuda()
    def device_of_a_tensor():
        return str(torch.ones(1, device="cuda").device)

    assert device_of_a_tensor() == "cuda:0"
    assert not torch.cuda.is_available()


def test_names_imported_before_the_context_answer_in_it():
    assert not is_available()
    with torch_loom.as_cuda():
        assert is_available()
        assert device_count() == 2
        x = torch.ones(1000, device="cuda")
        assert memory_allocated() >= x.nbytes
        synchronize()
        assert Stream().device.type == "cuda"
    assert not is_available()


def test_a_real_device_of_cuda_is_not_hidden(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(RuntimeError, match="expected no device of CUDA, got 3"):
        torch_loom.as_cuda().__enter__()
    with torch_loom.as_cuda(force=True):
        assert torch.ones(1, device="cuda").is_cuda
        assert torch.cuda.device_count() == 2
    assert torch.cuda.device_count() == 3


def test_a_hook_that_fails_leaves_nothing_behind(monkeypatch):
    def fail(changes: Changes) -> None:
        raise ZeroDivisionError

    hooks = (*table.HOOKS, table.Hook("broken", fail))
    monkeypatch.setattr(table, "HOOKS", hooks)
    before = _attributes()
    with pytest.raises(ZeroDivisionError):
        torch_loom.as_cuda().__enter__()
    assert not torch.cuda.is_available()
    assert _changed(before, _attributes()) == set()
    assert context._depth == 0


def test_a_hook_that_torch_has_outgrown_is_left_out(monkeypatch):
    def outgrown(changes: Changes) -> None:
        raise AttributeError("no such thing")

    hooks = (*table.HOOKS, table.Hook("that part", outgrown))
    monkeypatch.setattr(table, "HOOKS", hooks)
    with pytest.warns(UserWarning, match="that part does not know loom as cuda"):
        torch_loom.as_cuda().__enter__()
    try:
        assert torch.ones(1, device="cuda").is_cuda
    finally:
        torch_loom.as_cuda().__exit__(None, None, None)


def test_autocast_of_loom_keeps_its_dtype():
    with torch_loom.as_cuda():
        assert torch.get_autocast_dtype("cuda") == torch.float16
    assert torch.get_autocast_dtype("loom") == torch.bfloat16
    x = torch.ones(2, 2, device="loom")
    with torch.autocast("loom"):
        assert (x @ x).dtype == torch.bfloat16


def test_modules_are_changed_when_they_are_imported(tmp_path, monkeypatch):
    (tmp_path / "imported_later.py").write_text("VALUE = 1\nOTHER = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    changes = Changes()
    changes.when_imported("imported_later", lambda module: changes.set(module, "VALUE", 2))
    changes.when_imported("imported_later", lambda module: changes.set(module, "OTHER", 3))
    import imported_later

    assert (imported_later.VALUE, imported_later.OTHER) == (2, 3)
    changes.undo()
    assert (imported_later.VALUE, imported_later.OTHER) == (1, 1)
    monkeypatch.delitem(sys.modules, "imported_later")


@pytest.mark.parametrize(("force", "expected"), [(False, "1"), (True, "force")])
def test_the_variable_for_children_says_whether_the_program_insists(force, expected):
    assert "TORCH_LOOM_AS_CUDA" not in os.environ
    with torch_loom.as_cuda(force=force):
        assert os.environ["TORCH_LOOM_AS_CUDA"] == expected
    assert "TORCH_LOOM_AS_CUDA" not in os.environ


@pytest.mark.parametrize(
    ("asked", "there_is_another", "loads"),
    [
        ("", False, True),
        ("", True, False),
        ("0", True, False),
        ("1", False, True),
        ("force", True, True),
    ],
)
def test_another_accelerator_stays_the_accelerator(asked, there_is_another, loads, monkeypatch):
    monkeypatch.setenv("TORCH_LOOM_AS_CUDA", asked)
    monkeypatch.setattr(_loader, "_other_accelerator", lambda: there_is_another)
    assert _loader._may_load() == loads


def test_the_variable_is_not_ignored_beside_another_accelerator(monkeypatch):
    monkeypatch.setenv("TORCH_LOOM_AS_CUDA", "1")
    monkeypatch.setattr(_loader, "_other_accelerator", lambda: True)
    with pytest.raises(RuntimeError, match="expected no other accelerator"):
        _loader._may_load()


@pytest.mark.thorough
def test_cpp_that_is_loaded_meanwhile_uses_the_name(tmp_path):
    source = """
    #include <c10/core/Device.h>
    #include <torch/extension.h>
    std::string name_of(const at::Tensor& x) {
      return c10::DeviceTypeName(x.device().type(), true);
    }
    at::Tensor made_on(const std::string& device) { return at::ones({2}, c10::Device(device)); }
    """
    with torch_loom.as_cuda():
        module = torch.utils.cpp_extension.load_inline(
            "loom_cuda_names_device",
            cpp_sources=source,
            functions=["name_of", "made_on"],
            build_directory=str(tmp_path),
        )
        assert module.name_of(torch.ones(1, device="cuda")) == "cuda"
        assert module.made_on("cuda:1").device == torch.device("cuda:1")
    assert module.name_of(torch.ones(1, device="loom")) == "loom"


def test_undo_does_every_step():
    class Owner:
        kept = 1

    changes = Changes()
    done = []
    changes.on_undo(lambda: done.append("first"))
    changes.set(Owner, "kept", 2)
    changes.set(Owner, "new", 3)
    changes.on_undo(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        changes.undo()
    assert Owner.kept == 1
    assert not hasattr(Owner, "new")
    assert done == ["first"]


def test_a_function_that_runs_after_its_call_is_no_part_of_a_context():
    def generator():
        yield torch.cuda.is_available()

    async def coroutine():
        return torch.cuda.is_available()

    for function in (generator, coroutine):
        with pytest.raises(TypeError, match="Write `with as_cuda"):
            torch_loom.as_cuda()(function)


def test_a_context_is_left_once():
    context = torch_loom.as_cuda()
    with context:
        pass
    with pytest.raises(RuntimeError, match="that was entered"):
        context.__exit__(None, None, None)
    with context:
        assert torch.cuda.is_available()
