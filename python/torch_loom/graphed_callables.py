# SPDX-License-Identifier: BSD-3-Clause
"""Functions and modules whose forward and backward passes are replays of graphs."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

__all__ = ["make_graphed_callables"]

_Tensors = tuple[torch.Tensor, ...]
_MaybeTensors = tuple[torch.Tensor | None, ...]


def _needing_grad(tensors: Sequence[torch.Tensor]) -> _Tensors:
    return tuple(tensor for tensor in tensors if tensor.requires_grad)


def _padded(given: _MaybeTensors, like: Sequence[torch.Tensor]) -> _MaybeTensors:
    """Put a None for each tensor of ``like`` that needs no gradient."""
    rest = iter(given)
    return tuple(next(rest) if tensor.requires_grad else None for tensor in like)


class _Section:
    """One callable: its graphs, and the tensors that they read and write at every replay."""

    def __init__(self, function: Callable[..., Any], sample_args: tuple[Any, ...]) -> None:
        self.function = function
        self.sample_args = sample_args
        self.arguments: _Tensors = tuple(pytree.tree_leaves(sample_args))
        self.parameters: _Tensors = ()
        if isinstance(function, torch.nn.Module):
            self.parameters = tuple(function.parameters())
        self.inputs = self.arguments + self.parameters
        self.forward = torch.accelerator.Graph()
        self.backward = torch.accelerator.Graph()
        self.outputs: _Tensors = ()
        self.output_grads: _MaybeTensors = ()
        self.input_grads: _MaybeTensors = ()
        self.check()

    def check(self) -> None:
        if not all(isinstance(argument, torch.Tensor) for argument in self.arguments):
            raise TypeError(
                "make_graphed_callables: expected sample_args of tensors only, got "
                f"{[type(argument).__name__ for argument in self.arguments]}"
            )
        module = self.function
        if not isinstance(module, torch.nn.Module):
            return
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise ValueError(
                "make_graphed_callables: expected a module without hooks, got one that has some; "
                "register them on what is returned"
            )
        if any(buffer.requires_grad for buffer in module.buffers()):
            raise ValueError(
                "make_graphed_callables: expected buffers that need no gradient, got one that does"
            )

    def grad(self, outputs: _Tensors, output_grads: _Tensors, allow_unused: bool) -> _MaybeTensors:
        inputs = _needing_grad(self.inputs)
        if not outputs or not inputs:
            return ()
        return torch.autograd.grad(outputs, inputs, output_grads, allow_unused=allow_unused)

    def warm_up(self, times: int, allow_unused: bool) -> None:
        """Do what happens only once, such as the allocation of buffers, before the capture."""
        for _ in range(times):
            outputs = _needing_grad(pytree.tree_leaves(self.function(*self.sample_args)))
            self.grad(outputs, tuple(torch.ones_like(o) for o in outputs), allow_unused)

    def capture_forward(self, pool: tuple[int, int]) -> None:
        from .graphs import graph

        with graph(self.forward, pool=pool):
            result = self.function(*self.sample_args)
        leaves, self.structure = pytree.tree_flatten(result)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise TypeError(
                "make_graphed_callables: expected a callable that returns tensors, got "
                f"{[type(leaf).__name__ for leaf in leaves]}"
            )
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: tuple[int, int], allow_unused: bool) -> None:
        from .graphs import graph

        wanted = _needing_grad(self.outputs)
        given = tuple(torch.empty_like(output) for output in wanted)
        self.output_grads = _padded(given, self.outputs)
        grads: _MaybeTensors = ()
        if wanted and _needing_grad(self.inputs):
            with graph(self.backward, pool=pool):
                grads = self.grad(wanted, given, allow_unused)
            self.input_grads = _padded(grads, self.inputs)
        else:
            self.input_grads = (None,) * len(self.inputs)
        self.outputs = tuple(o.detach().requires_grad_(o.requires_grad) for o in self.outputs)

    def take_arguments(self, given: Sequence[torch.Tensor]) -> None:
        for number, (ours, theirs) in enumerate(zip(self.arguments, given, strict=True)):
            if ours.shape != theirs.shape:
                raise ValueError(
                    f"graphed callable: expected argument {number} of the sample's shape "
                    f"{tuple(ours.shape)}, got {tuple(theirs.shape)}"
                )
            if ours.data_ptr() != theirs.data_ptr():
                ours.copy_(theirs)

    def take_output_grads(self, given: Sequence[torch.Tensor | None]) -> None:
        for ours, theirs in zip(self.output_grads, given, strict=True):
            if ours is None:
                continue
            if theirs is None:
                ours.zero_()
            elif ours.data_ptr() != theirs.data_ptr():
                ours.copy_(theirs)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, section: _Section, *inputs: torch.Tensor) -> _Tensors:
        ctx.section = section
        ctx.set_materialize_grads(False)
        section.take_arguments(inputs[: len(section.arguments)])
        section.forward.replay()
        outputs = tuple(output.detach() for output in section.outputs)
        ctx.mark_non_differentiable(
            *(o for o, ours in zip(outputs, section.outputs, strict=True) if not ours.requires_grad)
        )
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *output_grads: torch.Tensor | None) -> Any:
        section: _Section = ctx.section
        section.take_output_grads(output_grads)
        section.backward.replay()
        # The tensors themselves, which are known here: so autograd copies what it accumulates
        # into, and never makes a parameter's grad of memory that the next replay writes.
        return None, *section.input_grads


def _replayed(section: _Section) -> Callable[..., Any]:
    def replay(*args: Any) -> Any:
        # Parameters are read where they are; they are given so that autograd knows of them.
        leaves = pytree.tree_leaves(args)
        outputs = _Replay.apply(section, *leaves, *section.parameters)  # type: ignore[no-untyped-call]
        return pytree.tree_unflatten(list(outputs), section.structure)

    return replay


def _graphed(section: _Section) -> Callable[..., Any]:
    replay = _replayed(section)
    module = section.function
    if not isinstance(module, torch.nn.Module):
        return replay
    captured_training, original = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training == captured_training and not kwargs:
            return replay(*args)
        return original(*args, **kwargs)

    module.forward = forward
    return module


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    r"""Capture functions or modules, and return them with their passes replaced by replays.

    What is returned takes part in autograd as the original does: its forward pass replays one
    graph, its backward pass another. Use and limits are those of
    :func:`torch.cuda.make_graphed_callables`: arguments are tensors and have the samples' shapes;
    the outputs are overwritten by the next call; no double backward; a module must keep its
    parameters and buffers, and runs its original forward where ``training`` differs from what it
    was at the capture, or with keyword arguments.

    Args:
        callables (Module or callable, or tuple of them): what to capture. Several are captured into
            one pool, so they must be called in this order, and their backward passes in the
            opposite one.
        sample_args (tuple of tensors, or tuple of such tuples): arguments for the capture, with the
            ``requires_grad`` that real ones will have. They stay in use.
        num_warmup_iters (int): runs before the capture. Default: 3.
        allow_unused_input (bool): whether an input may have no influence on the outputs.
        pool (tuple, optional): memory to share with other graphs. Default: a new pool.

    Raises:
        TypeError: when arguments or results are not tensors.
        ValueError: when a module has hooks or buffers that need gradients.
        RuntimeError: when something cannot be captured, and under autocast with its cache.
    """
    if torch.is_autocast_enabled("loom") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables: expected autocast with cache_enabled=False, got its cache, "
            "which would keep weights cast in the capture"
        )
    from .graphs import graph_pool_handle
    from .streams import Stream, StreamContext

    several = isinstance(callables, tuple)
    functions = cast("tuple[Callable[..., Any], ...]", callables if several else (callables,))
    samples = sample_args if several else (sample_args,)
    sections = [_Section(f, args) for f, args in zip(functions, samples, strict=True)]
    pool = graph_pool_handle() if pool is None else pool

    torch.accelerator.synchronize()
    with StreamContext(Stream()):
        for section in sections:
            section.warm_up(num_warmup_iters, allow_unused_input)
    torch.accelerator.synchronize()

    # In the order in which they will run: the pool's memory is used again along it.
    for section in sections:
        section.capture_forward(pool)
    for section in reversed(sections):
        section.capture_backward(pool, allow_unused_input)

    graphed = tuple(_graphed(section) for section in sections)
    return graphed if several else graphed[0]
