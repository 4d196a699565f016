# SPDX-License-Identifier: BSD-3-Clause
"""Inference in float32 on loom and on cpu beside engines that people serve models with on a cpu.

Every model is exported to ONNX once, and run by ONNX Runtime and by OpenVINO from that; loom runs
it eagerly, and replayed from a graph. All have as many threads, take turns in one process, and are
compared with eager cpu. A call is waited for. Packages: the extra `engines`.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from comparison import Comparison
from measure import describe, duration, interleaved, seconds_per_call
from torch import Tensor, nn
from worker import difference, replayed
from workloads import networks

SECONDS = 0.06
# Those that compute in another order differ by rounding; deep networks amplify it.
TOLERANCE = 1e-3
PACKAGES = ("onnx", "onnxscript", "onnxruntime", "openvino")

Call = Callable[[], Sequence[Tensor]]


@dataclass(frozen=True)
class Served:
    """A model, and the inputs of so many examples."""

    model: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]


def pictures(size: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda count: (torch.randn(count, 3, size, size),)


def words(vocabulary: int, length: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda count: (torch.randint(vocabulary, (count, length)),)


MODELS: dict[str, Served] = {
    "MLP 784-512-512-10": Served(networks.mlp, lambda count: (torch.randn(count, 784),)),
    "BERT 6x384, 128 words": Served(networks.Bert, words(30522, 128)),
    "ViT small 224": Served(networks.Vit, pictures(224)),
    "ResNet-50 224": Served(networks.resnet50, pictures(224)),
    "MobileNet v2 224": Served(networks.mobilenet_v2, pictures(224)),
    "ConvNeXt tiny 224": Served(networks.ConvNext, pictures(224)),
    "Segformer B0 256": Served(networks.Segformer, pictures(256)),
    "U-Net 64": Served(networks.unet, pictures(64)),
    "VAE 64": Served(
        networks.Vae, lambda count: (torch.randn(count, 3, 64, 64), torch.randn(count, 128))
    ),
    "GRU tagger, 64 words": Served(lambda: networks.Tagger(nn.GRU), words(10_000, 64)),
    "LSTM tagger, 64 words": Served(lambda: networks.Tagger(nn.LSTM), words(10_000, 64)),
    "Whisper tiny encoder": Served(networks.Whisper, lambda count: (torch.randn(count, 80, 3000),)),
}


def missing_packages() -> list[str]:
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def eager(model: nn.Module, inputs: Sequence[Tensor]) -> Call:
    def call() -> Sequence[Tensor]:
        with torch.inference_mode():
            return (model(*inputs),)

    return call


def exported(model: nn.Module, inputs: tuple[Tensor, ...]) -> bytes:
    """The model in ONNX, its shapes fixed.

    By the older exporter: the newer one takes recurrent layers apart, step by step.
    """
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, file, dynamo=False, opset_version=18)
    return file.getvalue()


def onnx_runtime(model: bytes, inputs: Sequence[Tensor], threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {
        entry.name: tensor.numpy()
        for entry, tensor in zip(session.get_inputs(), inputs, strict=True)
    }
    return lambda: [torch.from_numpy(each) for each in session.run(None, feed)]


def open_vino(model: bytes, inputs: Sequence[Tensor], threads: int) -> Call:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    request = compiled.create_infer_request()
    feed = [tensor.numpy() for tensor in inputs]

    def call() -> Sequence[Tensor]:
        results = request.infer(feed, share_inputs=True)
        return [torch.from_numpy(results[port]) for port in compiled.outputs]

    return call


def contenders(served: Served, count: int, threads: int) -> dict[str, Call]:
    torch.manual_seed(0)
    model = served.model().eval()
    inputs = served.inputs(count)
    calls = {"cpu": eager(model, inputs)}
    if not set(missing_packages()) & {"onnx", "onnxscript"}:
        file = exported(model, inputs)
        for package, make in (("onnxruntime", onnx_runtime), ("openvino", open_vino)):
            if package not in missing_packages():
                calls[package] = make(file, inputs, threads)
    twin = served.model().eval()
    twin.load_state_dict(model.state_dict())
    call = eager(twin.to("loom"), [tensor.to("loom") for tensor in inputs])
    return calls | {"loom": call, "replayed": replayed(call)}


def disagreeing(calls: dict[str, Call]) -> list[str]:
    expected = calls["cpu"]()
    return [
        f"{name} differs from cpu by {off:.1e}"
        for name, call in calls.items()
        if not (off := difference([each.cpu() for each in call()], expected)) <= TOLERANCE
    ]


def measured(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    def variant(name: str) -> Callable[[], float]:
        finish = torch.loom.synchronize if name in ("loom", "replayed") else lambda: None
        return lambda: seconds_per_call(calls[name], finish, 1, SECONDS, keep=True)

    return interleaved({name: variant(name) for name in calls}, rounds)


COLUMNS = {"cpu": "cpu", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
HEADER = ["model, examples", *COLUMNS.values()]
for _ours in ("loom", "replayed"):
    HEADER += [_ours, "cpu /", "engine /"]


def add_row(to: Comparison, name: str, times: dict[str, float]) -> None:
    engines = [times[each] for each in ("onnxruntime", "openvino") if each in times]
    cells = [name, *(duration(times[each]) if each in times else "-" for each in COLUMNS)]
    for ours in ("loom", "replayed"):
        cells += [
            duration(times[ours]),
            to.ratio(f"cpu / {ours}", times["cpu"] / times[ours], name),
        ]
        what = f"the better engine / {ours}"
        cells.append(to.ratio(what, min(engines) / times[ours], name) if engines else "-")
    to.add(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="only models that contain this")
    parser.add_argument("--threads", type=int, default=2, help="of everyone")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write a page in docs/performance")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.loom.set_num_threads(given.threads)
    describe(f"engines, float32, {given.threads} threads each (more than 1: loom is faster)")
    if missing := missing_packages():
        print(f"  not measured without {', '.join(missing)}: pip install 'torch-loom[engines]'")
    results = Comparison(HEADER)
    agree = True
    for name, served in MODELS.items():
        for count in given.batches if given.only in name else ():
            label = f"{name}, {count}"
            print(f"  {label}", file=sys.stderr, flush=True)
            calls = contenders(served, count, given.threads)
            for each in disagreeing(calls):
                agree = False
                results.note(f"{label}: {each}")
            add_row(results, label, measured(calls, given.rounds))
    if agree:
        results.note(f"all results are within {TOLERANCE} of cpu's, relative to their norm")
    results.show()
    if given.write:
        results.write("engines", "Engines", 'make bench ARGS="engines --write"')


if __name__ == "__main__":
    main()
