# SPDX-License-Identifier: BSD-3-Clause
"""AOTInductor: exported programs become packages, which Python and C++ run; the C++ wrapper."""

import copy

import pytest
import torch
from torch import nn
from torch._inductor import aoti_compile_and_package, aoti_load_package

LOOM = "loom"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning",
        # run_decompositions copies tree specifications of an old class.
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning",
    ),
]


class Image(nn.Module):
    """Counts its calls, as batch norm does."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classes = nn.Linear(8 * 25, 10)
        # Buffers of up to 8 elements become part of the code, on any device.
        self.register_buffer("seen", torch.zeros(16, dtype=torch.int64))

    def forward(self, x):
        self.seen += 1
        return self.classes(self.features(x).flatten(1))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens):
        return self.encoder(self.embedding(tokens)).mean(1)


def image():
    return Image().eval(), torch.randn(4, 3, 12, 12)


def text():
    return Text().eval(), torch.randint(50, (4, 9))


MODELS = pytest.mark.parametrize("make", [image, text])


@pytest.fixture(autouse=True)
def seed():
    torch._dynamo.reset()
    torch.manual_seed(0)


def export(model, x):
    batch = torch.export.Dim("batch", min=2, max=256)
    return torch.export.export(model, (x.to(LOOM),), dynamic_shapes=({0: batch},))


def assert_same(actual, expected):
    assert actual.is_loom
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


@MODELS
def test_programs_are_packaged(make, tmp_path):
    model, x = make()
    program = export(copy.deepcopy(model).to(LOOM), x)
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    package = aoti_load_package(path)
    for inputs in (x, torch.cat([x, x, x])):
        assert_same(package(inputs.to(LOOM)), model(inputs))


def test_programs_are_saved_decomposed_and_packaged_later(tmp_path):
    model, x = image()
    program = export(copy.deepcopy(model).to(LOOM), x).run_decompositions()
    torch.export.save(program, tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    assert_same(aoti_load_package(path)(x.to(LOOM)), model(x))


def test_what_a_model_counts_stays_in_the_package(tmp_path):
    model, x = image()
    program = export(copy.deepcopy(model).to(LOOM), x)
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    package = aoti_load_package(path)
    for _ in range(3):
        package(x.to(LOOM))
    counter = torch.full((16,), 5, device=LOOM)
    package.load_constants({"seen": counter}, check_full_update=False, user_managed=True)
    for _ in range(3):
        package(x.to(LOOM))
    assert counter.tolist() == [8] * 16


def test_two_models_in_one_package(tmp_path):
    files, expected = {}, {}
    for make in (image, text):
        model, x = make()
        name = make.__name__
        expected[name] = (x, model(x))
        program = export(copy.deepcopy(model).to(LOOM), x)
        files[name] = torch._inductor.aot_compile(
            program.module(), (x.to(LOOM),), options={"aot_inductor.package": True}
        )
    path = torch._inductor.package.package_aoti(str(tmp_path / "models.pt2"), files)
    for name, (x, result) in expected.items():
        package = torch._inductor.package.load_package(path, name)
        assert_same(package(x.to(LOOM)), result)


def test_bfloat16(tmp_path):
    model, x = text()
    model = model.bfloat16()
    program = export(copy.deepcopy(model).to(LOOM), x)
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    actual = aoti_load_package(path)(x.to(LOOM))
    torch.testing.assert_close(actual.cpu(), model(x), rtol=0.05, atol=0.05)


@MODELS
def test_models_train_with_the_c_plus_plus_wrapper(make):
    model, x = make()
    models = {"cpu": model.train(), LOOM: copy.deepcopy(model).to(LOOM)}
    for module in models[LOOM].modules(), models["cpu"].modules():
        for part in module:
            if isinstance(part, nn.Dropout):
                part.p = 0.0
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
    losses = {}
    with torch._inductor.config.patch(cpp_wrapper=True):
        for device, run in (("cpu", models["cpu"]), (LOOM, torch.compile(models[LOOM]))):
            optimizer = torch.optim.SGD(models[device].parameters(), lr=0.01)
            for _ in range(3):
                optimizer.zero_grad()
                loss = run(x.to(device)).square().mean()
                loss.backward()
                optimizer.step()
            losses[device] = loss.detach().cpu()
    torch.testing.assert_close(losses[LOOM], losses["cpu"], rtol=1e-3, atol=1e-5)


@torch.library.custom_op("loom_systems::ones_on", mutates_args=())
def ones_on(
    x: torch.Tensor, device: torch.device, scale: int, other: torch.device | None = None
) -> torch.Tensor:
    ones = torch.ones(x.shape, device=device) * scale
    return ones if other is None else ones + torch.ones(x.shape, device=other).to(device)


@ones_on.register_fake
def _(x, device, scale, other=None):
    return torch.empty(x.shape, device=device)


class Ones(nn.Module):
    def forward(self, x):
        there = ones_on(x, x.device, x.shape[0], other=torch.device("cpu")) + x
        return there, ones_on(x, torch.device("cpu"), 2) + 1, ones_on(x, torch.device(LOOM), 3)


def test_custom_operators_that_take_a_device_with_the_c_plus_plus_wrapper():
    with torch._inductor.config.patch(cpp_wrapper=True):
        results = torch.compile(Ones())(torch.ones(3, device=LOOM))
    torch.testing.assert_close(results, Ones()(torch.ones(3, device=LOOM)))


def test_custom_operators_that_take_a_device(tmp_path):
    rows = torch.export.Dim("rows", max=1000)
    program = torch.export.export(
        Ones(), (torch.ones(3, device="loom:0"),), dynamic_shapes=({0: rows},)
    )
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    for index in (0, 1):
        run = aoti_load_package(path, device_index=index)
        with torch.loom.device(1 - index):
            there, here, new = run(torch.ones(5, device=f"loom:{index}"))
        assert there.device == new.device == torch.device(LOOM, index)
        assert here.device == torch.device("cpu")
        assert there.tolist() == [7] * 5
        assert here.tolist() == new.tolist() == [3] * 5


def test_packages_need_the_operators_that_they_call(tmp_path, run):
    program = torch.export.export(Ones(), (torch.ones(3, device=LOOM),))
    path = aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    done = run(f"import torch; torch._inductor.aoti_load_package({path!r})")
    assert done.code != 0
    assert "expected an operator loom_systems::ones_on, which this process" in done.err


def test_integer_division_on_the_cpu_beside_loom(tmp_path):
    class Divide(nn.Module):
        def forward(self, x, y, a, b):
            return x // y, a // b, (a % b).sum()

    function = Divide()
    x = torch.arange(1, 100, device=LOOM)
    numbers = torch.arange(1, 100_000)
    inputs = (x, x + 1, numbers, numbers + 1)
    zero = numbers.clone()
    zero[5000] = 0
    with torch._inductor.config.patch(cpp_wrapper=True):
        compiled = torch.compile(function)
        torch.testing.assert_close(compiled(*inputs), function(*inputs))
    packaged = aoti_load_package(
        aoti_compile_and_package(
            torch.export.export(function, inputs),
            package_path=str(tmp_path / "model.pt2"),
        )
    )
    for run in (compiled, packaged):
        # An error of the cpu's division is raised at once, one of loom's by whoever waits for it.
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(x, x, numbers, zero)
        results = run(x, x - 50, numbers, numbers)
        assert results[1].eq(1).all()
        with pytest.raises(RuntimeError, match=r"ZeroDivisionError.*asynchronous error"):
            results[0].cpu()
        torch.testing.assert_close(tuple(run(*inputs)), function(*inputs))
