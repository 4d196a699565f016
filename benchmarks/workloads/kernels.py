# SPDX-License-Identifier: BSD-3-Clause
"""Products, convolutions, attention and norms: single kernels, and with what follows them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from workloads.workload import Call, Workload, Wrap

FLOAT, BFLOAT = torch.float32, torch.bfloat16

Function = Callable[..., Tensor]


def workload(
    name: str,
    function: Function,
    inputs: Callable[[], Sequence[Tensor]],
    outputs: int,
    flops: int = 0,
    dtype: torch.dtype = FLOAT,
    quick: bool = False,
) -> Workload:
    """A function of tensors with so many output elements."""

    def make(device: str, wrap: Wrap) -> Call:
        arguments = [tensor.to(dtype).to(device) for tensor in inputs()]
        compiled = wrap(function)

        def call() -> Sequence[Tensor]:
            with torch.no_grad():
                return (compiled(*arguments),)

        return call

    with torch.device("meta"):
        size = sum(tensor.numel() for tensor in inputs())
    traffic = (size + outputs) * dtype.itemsize
    return Workload("kernels", name, make, dtype=dtype, bytes=traffic, flops=flops, quick=quick)


def products(dtype: torch.dtype) -> list[Workload]:
    squares = [
        workload(
            f"mm {n}x{n}",
            torch.mm,
            lambda n=n: [torch.randn(n, n) for _ in range(2)],
            n * n,
            2 * n**3,
            dtype,
            quick=n == 512,
        )
        for n in (64, 256, 512, 1024)
    ]
    layers = [
        workload(
            f"linear+gelu {rows}x{inputs}x{outputs}",
            lambda x, weight, bias: F.gelu(F.linear(x, weight, bias)),
            lambda rows=rows, inputs=inputs, outputs=outputs: [
                torch.randn(rows, inputs),
                torch.randn(outputs, inputs) / 20,
                torch.randn(outputs),
            ],
            rows * outputs,
            2 * rows * inputs * outputs,
            dtype,
            quick=rows == 2048,
        )
        for rows, inputs, outputs in ((2048, 384, 1536), (512, 512, 512))
    ]
    return squares + layers


def convolution(
    label: str,
    images: tuple[int, int, int, int],
    layer: tuple[int, int, int],
    dtype: torch.dtype,
    layout: str,
    quick: bool = False,
) -> Workload:
    """Convolution, batch norm and relu in evaluation; `layer` is channels, kernel and stride."""
    batch, channels, height, width = images
    outputs, kernel, stride = layer
    memory_format = torch.channels_last if layout == "NHWC" else torch.contiguous_format

    def make(device: str, wrap: Wrap) -> Call:
        module = nn.Sequential(
            nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ).eval()
        module = module.to(device=device, dtype=dtype, memory_format=memory_format)
        x = torch.randn(images).to(dtype).to(device).to(memory_format=memory_format)
        compiled = wrap(module)

        def call() -> Sequence[Tensor]:
            with torch.inference_mode():
                return (compiled(x),)

        return call

    pixels = batch * (height // stride) * (width // stride)
    weights = outputs * channels * kernel * kernel
    elements = batch * channels * height * width + weights + pixels * outputs
    return Workload(
        "kernels",
        f"conv+bn+relu {label} {layout}",
        make,
        dtype=dtype,
        bytes=elements * dtype.itemsize,
        flops=2 * pixels * weights,
        quick=quick,
    )


def convolutions(dtype: torch.dtype) -> list[Workload]:
    shapes = {
        "3x3, 64 channels": ((8, 64, 56, 56), (64, 3, 1)),
        "7x7 stem": ((8, 3, 112, 112), (64, 7, 2)),
        "1x1, 256 to 64": ((8, 256, 28, 28), (64, 1, 1)),
    }
    return [
        convolution(label, images, layer, dtype, layout, quick=label.startswith("3x3"))
        for (label, (images, layer)), layout in itertools.product(shapes.items(), ("NCHW", "NHWC"))
    ]


def attention(dtype: torch.dtype) -> Workload:
    batch, heads, length, width = 8, 6, 256, 64
    return workload(
        "causal attention 8x6x256x64",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda: [torch.randn(batch, heads, length, width) for _ in range(3)],
        batch * heads * length * width,
        2 * batch * heads * length * length * width,  # half of what is not causal
        dtype,
        quick=True,
    )


def norms(dtype: torch.dtype) -> list[Workload]:
    shape, width = (2048, 1024), 1024
    elements = shape[0] * shape[1]
    return [
        workload(
            "layer_norm 2048x1024",
            lambda x, weight, bias: F.layer_norm(x, (width,), weight, bias),
            lambda: [torch.randn(shape), torch.randn(width), torch.randn(width)],
            elements,
            dtype=dtype,
            quick=True,
        ),
        workload(
            "softmax 2048x1024",
            lambda x: torch.softmax(x, -1),
            lambda: [torch.randn(shape)],
            elements,
            dtype=dtype,
        ),
        workload("gelu 2048x1024", F.gelu, lambda: [torch.randn(shape)], elements, dtype=dtype),
    ]


def movements() -> list[Workload]:
    shape = (2048, 1024)
    elements = shape[0] * shape[1]
    return [
        workload(
            "cat of columns 2048x1024",
            lambda x, y: torch.cat([x, y], 1),
            lambda: [torch.randn(shape) for _ in range(2)],
            2 * elements,
        ),
        workload(
            "copy of a transpose 2048x1024",
            lambda x: x.t().contiguous(),
            lambda: [torch.randn(shape)],
            elements,
        ),
    ]


def batch_norms() -> list[Workload]:
    """With the relu that follows, in training; the statistics are updated too."""
    shape, channels = (8, 64, 56, 56), 64
    elements = 8 * 64 * 56 * 56

    def step(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.relu(F.batch_norm(x, mean, var, weight, bias, training=True))

    def images(layout: torch.memory_format) -> Tensor:
        return torch.randn(shape).contiguous(memory_format=layout)

    layouts = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
    return [
        workload(
            f"batch_norm+relu, training 8x64x56x56 {name}",
            step,
            lambda layout=layout: [images(layout), *torch.rand(4, channels).unbind()],
            elements,
        )
        for name, layout in layouts.items()
    ]


def layouts() -> list[Workload]:
    images, heads = (8, 64, 56, 56), (8, 256, 6, 64)
    return [
        workload(
            "NCHW to NHWC 8x64x56x56",
            lambda x: x.contiguous(memory_format=torch.channels_last),
            lambda: [torch.randn(images)],
            8 * 64 * 56 * 56,
        ),
        workload(
            "heads outwards 8x256x6x64",
            lambda x: x.transpose(1, 2).contiguous(),
            lambda: [torch.randn(heads)],
            8 * 256 * 6 * 64,
        ),
    ]


def embedding_gradient() -> Workload:
    rows, width, tokens = 8192, 384, 2048

    def gradient(grad: Tensor, tokens: Tensor) -> Tensor:
        index = tokens.long()
        return torch.ops.aten.embedding_dense_backward(grad, index, rows, -1, False)

    return workload(
        "embedding gradient 2048x384",
        gradient,
        lambda: [torch.randn(tokens, width), torch.randint(rows, (tokens,))],
        rows * width,
    )


def workloads() -> list[Workload]:
    both = [
        each
        for dtype in (FLOAT, BFLOAT)
        for each in (
            *products(dtype),
            *convolutions(dtype),
            attention(dtype),
            *norms(dtype),
        )
    ]
    return [*both, *movements(), *layouts(), *batch_norms(), embedding_gradient()]
