# SPDX-License-Identifier: BSD-3-Clause
"""AOTInductor: models compiled into packages, which run without the compiler."""

import copy
import shutil
import threading
import zipfile

import pytest
import torch
from compile_support import LOOM, across, assert_equal, package, shifted
from torch import nn
from torch.nn import functional as F  # noqa: N812

from torch_loom import _C

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings(
        # Exported programs are decomposed, and have tree specifications of an old class.
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning",
    ),
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(4, 16, 3, padding=1)
        self.linear = nn.Linear(16, 12)
        self.register_buffer("scale", torch.linspace(1, 2, 12))

    def forward(self, x):
        y = F.gelu(self.convolution(x)).mean(-1)
        return F.softmax(self.linear(y) * self.scale, -1), y.sum()


def eager(x, **weights):
    torch.manual_seed(0)
    net = Net()
    net.load_state_dict(weights, strict=False)
    with torch.no_grad():
        return net(x)


def compile_net(path, **options):
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=1024)
    program = torch.export.export(
        Net().to(LOOM), (torch.randn(4, 4, 8, device=LOOM),), dynamic_shapes=({0: batch},)
    )
    return torch._inductor.aoti_compile_and_package(
        program, package_path=str(path), inductor_configs=options
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A package of Net for any batch."""
    return compile_net(tmp_path_factory.mktemp("aot") / "net.pt2")


@pytest.fixture
def net(path):
    return torch._inductor.aoti_load_package(path)


def test_values_for_any_batch(net):
    for batch in (2, 7, 300):
        x = torch.randn(batch, 4, 8)
        actual = net(x.to(LOOM))
        assert actual[0].device == LOOM
        assert_equal(actual, eager(x))


def test_a_process_that_has_only_the_package(path, check, tmp_path):
    moved = shutil.copy(path, tmp_path / "elsewhere.pt2")
    x = torch.randn(7, 4, 8)
    torch.save((x, eager(x)), tmp_path / "expected.pt")
    for memory in ("unified", "isolated"):
        check(
            """
            import sys
            import torch, torch_loom
            x, expected = torch.load(sys.argv[2])
            net = torch._inductor.aoti_load_package(sys.argv[1])
            torch.testing.assert_close([t.cpu() for t in net(x.to("loom"))], list(expected))
            second = torch._inductor.aoti_load_package(sys.argv[1], device_index=1)
            actual = second(x.to("loom:1"))
            assert str(actual[0].device) == "loom:1", actual[0].device
            torch.testing.assert_close([t.cpu() for t in actual], list(expected))
            """,
            str(moved),
            str(tmp_path / "expected.pt"),
            LOOM_MEMORY=memory,
            TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
            CXX="no-compiler",
        )
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_the_device_is_that_of_the_loading(path):
    x = torch.randn(5, 4, 8)
    with torch.loom.device(1):
        net = torch._inductor.aoti_load_package(path)
    explicit = torch._inductor.aoti_load_package(path, device_index=1)
    for on_second in (net, explicit):
        actual = on_second(x.to("loom:1"))
        assert [str(t.device) for t in actual] == ["loom:1", "loom:1"]
        assert_equal(actual, eager(x))


def test_a_device_that_is_not_there(path):
    with pytest.raises(RuntimeError, match="expected a device index in"):
        torch._inductor.aoti_load_package(path, device_index=7)


def test_a_run_does_not_wait_and_takes_the_current_stream(net):
    x = torch.randn(5, 4, 8)
    on_loom = x.to(LOOM)
    net(on_loom)
    torch.loom.synchronize()
    waits = torch.loom.host_waits()
    hold = _C._Hold(0, 20)  # the default stream
    side = torch.loom.Stream()
    with torch.loom.stream(side):
        result = net(on_loom)
    assert torch.loom.host_waits() == waits
    side.synchronize()
    assert not torch.loom.default_stream().query()
    with torch.loom.stream(side):
        assert_equal(result, eager(x))
    hold.release()


@pytest.mark.parametrize("runners", [1, 3])
def test_threads(path, runners):
    net = torch._inductor.package.load_package(path, num_runners=runners)
    inputs = [torch.randn(2 + i, 4, 8) for i in range(4)]
    results = {}

    def work(number):
        with torch.loom.stream(torch.loom.Stream()):
            for _ in range(20):
                results[number] = [t.cpu() for t in net(inputs[number].to(LOOM))]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, x in enumerate(inputs):
        assert_equal(results[number], list(eager(x)))


def test_threads_share_one_model_that_waits_for_the_device(tmp_path):
    def function(x):  # a number of elements that the host has to know
        return torch.nonzero(x > 0).sum(0), x.sum()

    x = torch.randn(50, 20)
    net = package(function, x.to(LOOM), path=tmp_path)
    expected, failed = function(x), []

    def work():
        with torch.loom.stream(torch.loom.Stream()):
            for _ in range(30):
                actual = [t.cpu() for t in net(x.to(LOOM))]
                if not torch.equal(actual[0], expected[0]):
                    failed.append(actual)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failed == []


def test_a_single_threaded_package(path):
    net = torch._inductor.package.load_package(path, run_single_threaded=True)
    x = torch.randn(5, 4, 8)
    assert_equal(net(x.to(LOOM)), eager(x))


def test_results_outlive_the_package(path):
    net = torch._inductor.aoti_load_package(path)
    x = torch.randn(5, 4, 8)
    on_loom = x.to(LOOM)
    hold = _C._Hold(0, 20)
    result = net(on_loom)
    del net  # its kernels have not run yet
    hold.release()
    assert_equal(result, eager(x))


# Constants.


def test_names_of_constants(net):
    assert set(net.get_constant_fqns()) == set(Net().state_dict())


@pytest.mark.parametrize("device", ["cpu", "loom:0", "loom:1"])
def test_constants_are_updated_from_any_device(net, device):
    x = torch.randn(5, 4, 8)
    weights = {"linear.weight": torch.randn(12, 16), "scale": torch.ones(12)}
    given = {name: weight.clone().to(device) for name, weight in weights.items()}
    net.load_constants(given, check_full_update=False, allow_h2d_copy=device == "cpu")
    for weight in given.values():
        weight.fill_(99)  # they were copied
    assert_equal(net(x.to(LOOM)), eager(x, **weights))


def test_constants_that_the_user_keeps(net):
    x = torch.randn(5, 4, 8)
    scale = torch.ones(12, device=LOOM)
    net.load_constants({"scale": scale}, check_full_update=False, user_managed=True)
    assert_equal(net(x.to(LOOM)), eager(x, scale=torch.ones(12)))
    scale.fill_(3)
    assert_equal(net(x.to(LOOM)), eager(x, scale=torch.full((12,), 3.0)))


def test_constants_that_the_user_keeps_elsewhere(net, capfd):
    for wrong in (torch.ones(12, device="loom:1"), torch.ones(7, device=LOOM)):
        with pytest.raises(RuntimeError):
            net.load_constants({"scale": wrong}, check_full_update=False, user_managed=True)
    errors = capfd.readouterr().err
    assert "expected scale on loom:0, got a tensor on loom:1" in errors
    assert "expected scale of shape [12], got a tensor of shape [7]" in errors


def test_transposed_constants_are_laid_out_as_they_were(net):
    x, weight = torch.randn(5, 4, 8), torch.randn(16, 12).t()
    net.load_constants({"linear.weight": weight.to(LOOM)}, check_full_update=False)
    assert_equal(net(x.to(LOOM)), eager(x, **{"linear.weight": weight}))


def test_a_constant_of_another_shape_or_dtype(net):
    for wrong in (torch.ones(6), torch.ones(12, dtype=torch.float64)):
        with pytest.raises(RuntimeError):
            net.load_constants({"scale": wrong.to(LOOM)}, check_full_update=False)
    x = torch.randn(5, 4, 8)
    assert_equal(net(x.to(LOOM)), eager(x))


def test_a_constant_that_is_missing_or_unknown(net):
    with pytest.raises(RuntimeError):
        net.load_constants({"scale": torch.ones(12, device=LOOM)}, check_full_update=True)
    with pytest.raises(RuntimeError, match="Constant not found: shift"):
        net.load_constants({"shift": torch.ones(5, device=LOOM)}, check_full_update=False)


def test_constants_are_replaced_while_a_run_reads_them(net):
    x = torch.randn(5, 4, 8)
    hold = _C._Hold(0, 0.2)
    results = []
    for value in (2.0, 3.0):
        results.append(net(x.to(LOOM)))
        scale = torch.full((12,), value)
        net.load_constants({"scale": scale}, check_full_update=False, allow_h2d_copy=True)
    results.append(net(x.to(LOOM)))
    hold.release()
    scales = (torch.linspace(1, 2, 12), torch.full((12,), 2.0), torch.full((12,), 3.0))
    for result, scale in zip(results, scales, strict=True):
        assert_equal(result, eager(x, scale=scale))


@pytest.mark.slow
def test_constants_are_folded_when_the_package_is_loaded(tmp_path):
    path = compile_net(tmp_path / "net.pt2", **{"aot_inductor.use_runtime_constant_folding": True})
    net = torch._inductor.aoti_load_package(path)
    x = torch.randn(5, 4, 8)
    assert_equal(net(x.to(LOOM)), eager(x))


@pytest.mark.slow
def test_weights_beside_the_library(tmp_path, capfd):
    x = torch.randn(5, 4, 8)
    torch.manual_seed(0)
    expected = Net()
    program = torch.export.export(copy.deepcopy(expected).to(LOOM), (x.to(LOOM),))
    options = {
        "aot_inductor.package": True,
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.package_constants_on_disk_format": "pickle_weights",
    }
    files = torch._inductor.aot_compile(program.module(), (x.to(LOOM),), options=options)
    torch.export.pt2_archive._package.package_pt2(tmp_path / "net.pt2", aoti_files=files)
    load = torch.export.pt2_archive._package.load_pt2
    empty = load(tmp_path / "net.pt2").aoti_runners["model"]
    with pytest.raises(RuntimeError):
        empty(x.to(LOOM))
    assert "expected load_constants() before the first run" in capfd.readouterr().err
    empty.load_constants(expected.state_dict(), check_full_update=True, allow_h2d_copy=True)
    assert_equal(empty(x.to(LOOM)), eager(x))
    net = load(tmp_path / "net.pt2", load_weights_from_disk=True).aoti_runners["model"]
    assert_equal(net(x.to(LOOM)), eager(x))


# Operators, numbers and errors.


def test_operators_and_numbers_of_the_host(tmp_path):
    constant = torch.tensor(3.0)

    def function(x, number):
        solved = torch.linalg.solve(x + 5 * torch.eye(4, device=x.device), x)  # no entry point
        return solved * 2, shifted(x * 2, 3.0).sin() * constant, torch.sin(x) * number

    x, number = torch.rand(4, 4), torch.tensor(2.0)
    net = package(function, x.to(LOOM), number, path=tmp_path)
    assert_equal(net(x.to(LOOM), number), function(x, number))
    on_loom = x.to(LOOM)
    hold = _C._Hold(0, 0.5)
    number.fill_(5.0)
    result = net(on_loom, number)[2]
    number.fill_(100.0)  # the kernel may not have run yet
    hold.release()
    assert_equal(result, torch.sin(x) * 5)


@pytest.mark.parametrize(
    "options",
    [
        {"aot_inductor.package_constants_on_disk_format": "binary_blob"},
        {"aot_inductor.package_cpp_only": True, "aot_inductor.dynamic_linkage": False},
    ],
    ids=["binary_blob", "dynamic_linkage"],
)
def test_other_ways_of_packaging_are_refused_by_name(tmp_path, options, request):
    with pytest.raises(Exception, match=f"aot_inductor.*{request.node.callspec.id}.* loom"):
        compile_net(tmp_path / "net.pt2", **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Loading outdated")
def test_a_package_of_sources_is_compiled_where_it_is_loaded(tmp_path):
    path = compile_net(tmp_path / "net.pt2", **{"aot_inductor.package_cpp_only": True})
    net = torch._inductor.aoti_load_package(path)
    x = torch.randn(5, 4, 8)
    assert_equal(net(x.to(LOOM)), eager(x))


@pytest.mark.parametrize("device", ["cpu", "loom:1"])
def test_an_input_on_another_device(net, device, capfd):
    with pytest.raises(RuntimeError):
        net(torch.randn(5, 4, 8, device=device))
    assert f"expected input 0 on loom:0, got a tensor on {device}" in capfd.readouterr().err


def test_an_error_of_a_kernel_names_it(tmp_path):
    x, good = torch.randn(10), torch.tensor([1, 2])
    net = package(lambda x, i: x[i] * 2, x.to(LOOM), good.to(LOOM), path=tmp_path)
    result = net(x.to(LOOM), torch.tensor([1, 99], device=LOOM))
    with pytest.raises(RuntimeError, match=r"index out of bounds(.|\n)*raised by 'cpp_fused_"):
        torch.loom.synchronize()
    del result
    assert_equal(net(x.to(LOOM), good.to(LOOM)), x[good] * 2)


def test_a_graph_with_tensors_of_two_devices(tmp_path):
    x, y = torch.randn(40, device="loom:0"), torch.randn(40, device="loom:1")
    actual = package(across, x, y, path=tmp_path)(x, y)
    assert [str(t.device) for t in actual] == ["loom:1", "loom:0"]
    assert_equal(actual, across(x, y))


def test_a_library_that_was_not_made_for_loom(path, tmp_path):
    other = tmp_path / "other.pt2"
    with zipfile.ZipFile(path) as original, zipfile.ZipFile(other, "w") as changed:
        for name in original.namelist():
            content = original.read(name)
            if name.endswith(".so"):
                content = content.replace(b"loom_package_interface", b"else_package_interface")
            changed.writestr(name, content)
    with pytest.raises(RuntimeError, match="expected a library that torch-loom has compiled"):
        torch._inductor.aoti_load_package(other)
