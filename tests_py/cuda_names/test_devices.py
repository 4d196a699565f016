# SPDX-License-Identifier: BSD-3-Clause
"""The device string "cuda", what devices print as, and the module torch.cuda."""

import copy
import io
import pickle
import threading

import pytest
import torch


def test_the_cpu_is_still_the_cpu():
    assert torch.empty(1, device="cpu").device.type == "cpu"
    assert not torch.empty(1).is_cuda


def test_every_way_to_name_a_device_names_the_same():
    expected = torch.ones(1, device="cuda:1").device
    assert torch.device("cuda", 1) == expected
    assert torch.device(type="cuda", index=1) == expected
    assert torch.device(1) == expected
    assert torch.device("loom", 1) == expected
    assert torch.device("cuda") != expected
    assert len({torch.device("cuda:1"), torch.device("cuda", 1), expected}) == 1
    assert {expected: 2}[torch.device("cuda:1")] == 2


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:01", "CUDA", "cudax", "cuda:1.5"])
def test_a_bad_name_is_refused_as_on_cuda(name):
    with pytest.raises(RuntimeError, match=r"Invalid device string|at start of device string"):
        torch.device(name)


def test_devices_print_as_cuda():
    x = torch.ones(1, device="cuda")
    assert repr(x.device) == "device(type='cuda', index=0)"
    assert f"{x.device}" == "cuda:0"
    assert x.device.type == "cuda"
    assert "device='cuda:0'" in repr(x)
    assert x.type() == "torch.cuda.FloatTensor"
    assert str(torch.accelerator.current_accelerator()) == "cuda"


def test_errors_name_cuda():
    x = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        x + torch.ones(2)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device="cuda:7")
    with pytest.raises(ValueError, match="expected a cuda device, got cpu"):
        torch.cuda.current_stream("cpu")


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(2, device=d),
        lambda d: torch.tensor([1.0], device=d),
        lambda d: torch.arange(3, device=d),
        lambda d: torch.randn(2, device=d),
        lambda d: torch.ones(2).to(d),
        lambda d: torch.ones(2).to(device=d, dtype=torch.float64),
        lambda d: torch.ops.aten.ones([2], device=d),
        lambda d: torch.zeros_like(torch.ones(2), device=d),
        lambda d: torch.ones(2).new_empty(2, device=d),
        lambda d: torch.nn.Linear(2, 2, device=d).weight,
        lambda d: torch.nn.Linear(2, 2).to(d).weight,
        lambda d: torch.nn.utils.rnn.pack_sequence([torch.ones(2)]).to(d).data,
        lambda d: torch.sparse_coo_tensor([[0]], [1.0], (1,), device=d, check_invariants=True),
    ],
)
def test_factories_take_the_name(make):
    assert make("cuda").device == torch.device("cuda:0")
    assert make(torch.device("cuda", 1)).device == torch.device("cuda:1")
    assert make("cuda:1").is_cuda


def test_cuda_moves_tensors_modules_and_storages():
    x = torch.ones(2)
    assert x.cuda().device == torch.device("cuda:0")
    assert x.cuda(1).device == torch.device("cuda:1")
    assert x.cuda("cuda:1", non_blocking=True).device == torch.device("cuda:1")
    assert x.cuda(device=torch.device("cuda:1")).device == torch.device("cuda:1")
    with torch.cuda.device(1):
        assert x.cuda().device == torch.device("cuda:1")
    module = torch.nn.Linear(2, 2).cuda(1)
    assert module.weight.device == torch.device("cuda:1")
    assert module.weight.is_cuda
    assert x.untyped_storage().cuda().device == torch.device("cuda:0")
    assert x.untyped_storage().cuda().is_cuda
    packed = torch.nn.utils.rnn.pack_sequence([x]).cuda()
    assert packed.is_cuda
    with pytest.raises(ValueError, match="cuda"):
        x.cuda("cpu")


def test_moving_to_where_a_tensor_is_makes_no_copy():
    x = torch.ones(2, device="cuda")
    assert x.to("cuda") is x
    assert x.cuda() is x
    assert x.to(torch.device("cuda", 0)) is x
    assert x.to(0) is x


def test_default_device_and_device_contexts():
    torch.set_default_device("cuda:1")
    assert torch.ones(1).device == torch.device("cuda:1")
    assert str(torch.get_default_device()) == "cuda:1"
    torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.ones(1).is_cuda
        assert torch.nn.Linear(1, 1).weight.is_cuda


def test_subclasses_and_modes_answer_is_cuda_for_themselves():
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", func))
            return func(*args, **(kwargs or {}))

    class Contrary(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func == torch.Tensor.is_cuda.__get__:
                return "asked"
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.ones(1, device="cuda")
    with Mode():
        assert x.is_cuda
    assert seen == ["__get__"]
    assert x.as_subclass(Contrary).is_cuda == "asked"
    assert torch.nn.Parameter(x).is_cuda
    assert not torch.nn.Parameter(torch.ones(1)).is_cuda


def test_all_threads_see_the_name():
    x = torch.ones(2, device="cuda", requires_grad=True)
    seen = []
    x.register_hook(lambda grad: seen.append(str(grad.device)))

    def run():
        seen.append(str(torch.ones(1, device="cuda").device))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    x.sum().backward()
    assert seen == ["cuda:0", "cuda:0"]


def test_devices_and_tensors_are_pickled_as_cuda():
    x = torch.ones(2, device="cuda:1")
    assert pickle.loads(pickle.dumps(x.device)) == x.device
    assert b"cuda" in pickle.dumps(x.device)
    assert pickle.loads(pickle.dumps(x)).device == x.device
    assert copy.deepcopy(x).device == x.device
    file = io.BytesIO()
    torch.save({"x": x}, file)
    assert b"cuda:1" in file.getvalue()
    assert b"loom" not in file.getvalue()


def _saved_on(device):
    """A file as one that was saved on another machine."""
    file = io.BytesIO()
    torch.save({"x": torch.arange(3.0, device=device)}, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    ("map_location", "expected"),
    [
        (None, "cuda:1"),
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:0", "cuda:0"),
        ({"cuda:1": "cuda:0"}, "cuda:0"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.cuda(0), "cuda:0"),
    ],
)
def test_map_location(map_location, expected):
    loaded = torch.load(_saved_on("cuda:1"), map_location=map_location, weights_only=False)
    assert str(loaded["x"].device) == expected
    assert loaded["x"].tolist() == [0, 1, 2]


def test_map_location_is_a_device():
    loaded = torch.load(_saved_on("cuda:1"), map_location=torch.device("cuda", 0))
    assert str(loaded["x"].device) == "cuda:0"


def test_what_torch_cuda_says_of_devices():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.get_device_capability("cuda:1") == (8, 0)
    properties = torch.cuda.get_device_properties("cuda:1")
    assert properties.total_memory > 0
    assert properties.multi_processor_count >= 1
    assert (properties.major, properties.minor) == (8, 0)
    assert torch.cuda.get_device_name() == properties.name
    assert torch.cuda.is_bf16_supported()
    assert torch.backends.cuda.is_built()
    assert torch.version.cuda is None
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)


def test_the_current_device():
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == 1
    assert torch.ones(1, device="cuda").device.index == 1
    with torch.cuda.device("cuda:0"):
        assert torch.cuda.current_device() == 0
    with torch.cuda.device_of(torch.ones(1, device="cuda:0")):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)


@pytest.mark.parametrize(
    ("visible", "count"), [("", 0), ("0", 1), ("1", 1), ("0,1", 2), ("1,0,5", 2), ("-1", 0)]
)
def test_cuda_visible_devices_is_heeded(visible, count, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert torch.cuda.device_count() == count
    assert torch.cuda.is_available() == (count > 0)


def test_types_of_tensors():
    x = torch.cuda.FloatTensor(2, 3)
    assert x.shape == (2, 3)
    assert x.is_cuda
    assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2]
    assert torch.cuda.LongTensor([1, 2]).dtype == torch.int64
    assert torch.cuda.HalfTensor().numel() == 0
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x, torch.cuda.DoubleTensor)
    assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)
    y = torch.ones(2).type("torch.cuda.DoubleTensor")
    assert y.is_cuda
    assert y.dtype == torch.float64
    assert torch.ones(2).type(torch.cuda.IntTensor).type() == "torch.cuda.IntTensor"
    assert y.type("torch.FloatTensor").device.type == "cpu"
    assert y.type(torch.float16).dtype == torch.float16


def test_types_of_sparse_tensors():
    indices, values = torch.tensor([[0, 2]]), torch.tensor([1.0, 3.0])
    x = torch.cuda.sparse.FloatTensor(indices.cuda(), values.cuda(), torch.Size([4]))
    assert x.is_cuda
    assert x.to_dense().tolist() == [1, 0, 3, 0]
    assert torch.cuda.sparse.DoubleTensor(indices, values).dtype == torch.float64
    assert torch.cuda.sparse.LongTensor(2, 3).shape == (2, 3)


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_default_tensor_type():
    try:
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        assert torch.ones(1).is_cuda
        assert torch.ones(1).dtype == torch.float64
        torch.set_default_tensor_type(torch.FloatTensor)
        assert torch.ones(1).device.type == "cpu"
        assert torch.ones(1).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
