# SPDX-License-Identifier: BSD-3-Clause
"""``flex_attention`` in a compiled graph: the operators that it stands for, which Inductor fuses.

Inductor has it as templates of Triton, and of C++ that runs on OpenMP without gradients. Here:

* scores that are masked and nothing else are left to loom's fused attention, which makes them tile
  by tile. In memory are only the mask, once for all batches and heads that share it, and what
  PyTorch's own attention has;
* scores that the user's function modifies lie in memory once: a product makes them, one kernel
  scales, modifies and masks them and turns each row into weights, and a second product gives the
  output. Backward makes them again from the logarithms of their sums.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config, ir, lowering
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.attention.flex_attention import _vmap_for_bhqkv
from torch.utils import _pytree as pytree

from .._utils import is_loom

__all__ = ["apply"]

_LN2 = math.log(2)  # logarithms are handed on to base 2, as PyTorch's kernels have them

_Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]


def apply() -> None:
    """Lower both operators on loom by the formulas below. Call once."""
    operators = torch.ops.higher_order
    for hop, formula in (
        (operators.flex_attention, _forward),
        (operators.flex_attention_backward, _backward),
    ):
        lowering.lowerings[hop] = _lower_on_loom(lowering.lowerings[hop], formula)


def _lower_on_loom(original: Callable[..., Any], formula: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def lower(*args: Any) -> Any:
        if not is_loom(args[0].get_device()):
            return original(*args)
        return _inline(formula, V.graph.current_node, args)

    return lower


def _inline(formula: Callable[..., Any], node: torch.fx.Node, args: Any) -> Any:
    """Lower the operators of a formula in place of a node.

    Args:
        formula: a function of the results that are taken and of tensors, which is traced.
        node: the call in the graph.
        args: its arguments as Inductor represents them: it knows the graphs of user's functions.
    """
    leaves = pytree.tree_leaves(node.args)
    lowered, structure = pytree.tree_flatten(args)
    constants = [x.graph_module if isinstance(x, ir.Subgraph) else x for x in lowered]
    operands = [
        index
        for index, (leaf, value) in enumerate(zip(leaves, lowered, strict=True))
        if isinstance(leaf, torch.fx.Node) and not isinstance(value, ir.Subgraph)
    ]
    taken = {user.args[1] for user in node.users if user.target is operator.getitem}

    def function(*values: Any) -> Any:
        flat = list(constants)
        for index, value in zip(operands, values, strict=True):
            flat[index] = value
        results = formula(taken, *pytree.tree_unflatten(flat, structure))
        return [result if i in taken else None for i, result in enumerate(results)]

    with V.fake_mode, torch.no_grad():
        traced = make_fx(
            function, decomposition_table=_decompositions(), _allow_non_fake_inputs=True
        )(*[leaves[index].meta["val"] for index in operands])
    traced.graph.eliminate_dead_code()
    _adopt_constants(traced)
    return lowering.process_subgraph_nodes(traced, [lowered[index] for index in operands])


def _decompositions() -> dict[Any, Callable[..., Any]]:
    scatter = {torch.ops.flex_lib.zeros_and_scatter.default: _scatter}
    return scatter if config.fallback_by_default else {**select_decomp_table(), **scatter}


def _adopt_constants(traced: torch.fx.GraphModule) -> None:
    """Give tensors that the user's functions contain to the graph that is being lowered."""
    for node in traced.graph.find_nodes(op="get_attr"):
        name = f"flex_attention_{node.target}"
        while hasattr(V.graph.module, name):
            name += "_"
        setattr(V.graph.module, name, getattr(traced, node.target))
        node.target = name


def _forward(
    taken: set[int],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: torch.fx.GraphModule,
    block_mask: Any,
    scale: float,
    kernel_options: Any,
    score_buffers: Any,
    mask_buffers: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Attention of [B, H, M, D] queries to [B or 1, H / G, N, D] keys.

    Returns the output, the logarithms of the rows' sums and their largest scores.
    """
    if _suits_fused_attention(score_mod, query, key, value) and 2 not in taken:
        return *_fused_forward(query, key, value, block_mask[-1], scale, mask_buffers), None
    scores = _Scores(query, key, score_mod, block_mask, scale, score_buffers, mask_buffers).masked
    largest = scores.amax(-1, keepdim=True)
    # A row without any key has weights and an output of zero.
    weights = torch.exp(scores - torch.where(largest == -math.inf, 0.0, largest))
    total = weights.sum(-1, keepdim=True)
    product = _product(weights.to(query.dtype), value.to(query.dtype))
    output = (product / torch.where(total == 0, 1.0, total)).to(query.dtype)
    logarithms = (largest + total.log()).squeeze(-1) / _LN2
    return output, logarithms.float(), (largest.squeeze(-1) / _LN2).float()


def _backward(
    taken: set[int],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    logarithms: torch.Tensor,
    grad_output: torch.Tensor | None,
    grad_logarithms: torch.Tensor | None,
    score_mod: torch.fx.GraphModule,
    joint: torch.fx.GraphModule,
    block_mask: Any,
    scale: float,
    kernel_options: Any,
    score_buffers: Any,
    mask_buffers: Any,
) -> _Gradients:
    """Gradients of queries, keys, values, and of tensors that the score function reads."""
    grad_output = torch.zeros_like(output) if grad_output is None else grad_output
    if _suits_fused_attention(score_mod, query, key, value) and grad_logarithms is None:
        tensors = (query, key, value, output, logarithms * _LN2, grad_output)
        return *_fused_backward(*tensors, block_mask[-1], scale, mask_buffers), ()
    scores = _Scores(query, key, score_mod, block_mask, scale, score_buffers, mask_buffers)
    logarithms = logarithms.unsqueeze(-1)
    empty = logarithms == -math.inf
    weights = torch.where(empty, 0.0, torch.exp(scores.masked - logarithms * _LN2))
    grad_weights = _product(grad_output.to(weights.dtype), value.to(weights.dtype).mT)
    shift = (output.to(weights.dtype) * grad_output.to(weights.dtype)).sum(-1, keepdim=True)
    if grad_logarithms is not None:
        shift = shift - grad_logarithms.unsqueeze(-1) / _LN2

    buffers = len(score_buffers)
    differentiate = _over_scores(
        joint,
        prefix=(0,),
        suffix=(0,) + (None,) * buffers,
        out_dims=[0] + [None] * (4 + buffers),
    )
    grad_scores, _, _, _, _, *captured = differentiate(
        scores.plain, *scores.positions, weights * (grad_weights - shift), *score_buffers
    )
    grad_scores = torch.where(scores.kept, grad_scores * scale, 0.0).to(query.dtype)

    grad_query = _product(grad_scores, key.to(query.dtype))
    grad_key = _transposed_product(grad_scores, query, key)
    grad_value = _transposed_product(weights.to(query.dtype), grad_output, value)
    grads = tuple(
        None if grad is None else grad.to(buffer.dtype)
        for grad, buffer in zip(captured, score_buffers, strict=True)
    )
    return grad_query, grad_key, grad_value, grads


def _suits_fused_attention(
    score_mod: torch.fx.GraphModule, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> bool:
    """Whether scores are not modified, and operands are such as the fused operator takes."""
    (output,) = score_mod.graph.find_nodes(op="output")
    is_score = output.args[0] is next(iter(score_mod.graph.nodes))
    # Fake logarithms of float64 are float32, and real ones are not.
    one_dtype = query.dtype == key.dtype == value.dtype != torch.float64
    return is_score and one_dtype and statically_known_true(query.shape[-1] == value.shape[-1])


def _fused_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask_mod: torch.fx.GraphModule,
    scale: float,
    mask_buffers: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and logarithms by the fused operator."""
    kept = _mask(mask_mod, mask_buffers, query, key)
    key, value = (_repeat_heads(x, query) for x in (key, value))
    if kept is None:
        return _fused_attention(query, key, value, None, scale)
    # A row without any key sees all of them, and its result is dropped: no sum is empty.
    seen = kept.any(-1, keepdim=True)
    added = torch.where(kept | ~seen, 0.0, -math.inf).to(query.dtype)
    output, logarithms = _fused_attention(query, key, value, added, scale)
    return (
        torch.where(seen, output, 0.0).to(query.dtype),
        torch.where(seen.squeeze(-1), logarithms, -math.inf),
    )


def _fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    added: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    output, logarithms, *_ = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, added, scale=scale
    )
    return output, logarithms / _LN2


def _fused_backward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    logarithms: torch.Tensor,
    grad_output: torch.Tensor,
    mask_mod: torch.fx.GraphModule,
    scale: float,
    mask_buffers: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries, keys and values by the fused operator."""
    kept = _mask(mask_mod, mask_buffers, query, key)
    added = None if kept is None else torch.where(kept, 0.0, -math.inf).to(query.dtype)
    # Of a row without any key: its weights become zero whatever is subtracted from the scores.
    logarithms = torch.where(logarithms == -math.inf, 0.0, logarithms)
    unused = None
    grad_query, grad_key, grad_value, _ = (
        torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward(
            grad_output,
            query,
            _repeat_heads(key, query),
            _repeat_heads(value, query),
            added,
            [True, True, True, False],
            output,
            logarithms,
            unused,
            unused,
            query.shape[2],
            key.shape[2],
            0.0,
            False,
            unused,
            unused,
            scale=scale,
        )
    )
    return grad_query, _sum_heads(grad_key, key), _sum_heads(grad_value, value)


def _mask(
    mask_mod: torch.fx.GraphModule, buffers: Any, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor | None:
    """Which keys each query sees, with one entry for all batches, heads or queries that share it.

    None if it is all of them: [B or 1, H or 1, M or 1, N] otherwise.
    """
    (output,) = mask_mod.graph.find_nodes(op="output")
    result = output.args[0]
    if result.target is torch.ops.aten.full.default and result.args[1] is True:
        return None
    sizes = (*query.shape[:3], key.shape[2])
    positions = [torch.arange(size, device=query.device) for size in sizes]
    keep = _over_scores(mask_mod, prefix=(), suffix=(None,) * len(buffers))
    kept: torch.Tensor = keep(*positions, *buffers)
    for dim in range(3):
        if kept.stride(dim) == 0:  # expanded, as the function does not look at this position
            kept = kept.narrow(dim, 0, 1)
    return kept


def _repeat_heads(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Keys or values, [B or 1, H / G, N, K], for each batch and head of `like`."""
    if statically_known_true(x.shape[0] == like.shape[0]) and statically_known_true(
        x.shape[1] == like.shape[1]
    ):
        return x
    batch, heads, _, _ = like.shape
    group = heads // x.shape[1]
    shared = x.unsqueeze(2).expand(batch, -1, group, -1, -1)
    return shared.reshape(batch, heads, x.shape[2], x.shape[3])


def _sum_heads(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of keys or values from that of `_repeat_heads(x, ...)`."""
    if statically_known_true(grad.shape[1] != x.shape[1]):
        grad = grad.unflatten(1, (x.shape[1], -1)).sum(2)
    if statically_known_true(grad.shape[0] != x.shape[0]):
        grad = grad.sum(0, keepdim=True)
    return grad


def _over_scores(graph: torch.fx.GraphModule, **dims: Any) -> Callable[..., Any]:
    """A user's function of one score or position, for all of them at once."""
    function = _vmap_for_bhqkv(_WithBatchingRules(graph).run, **dims)

    def run(*args: Any) -> Any:
        vmap: Any = torch._C._functorch
        enabled = vmap._is_vmap_fallback_enabled()
        vmap._set_vmap_fallback_enabled(False)  # what has no rule would be called for each score
        try:
            return function(*args)
        finally:
            vmap._set_vmap_fallback_enabled(enabled)

    return run


class _WithBatchingRules(torch.fx.Interpreter):
    """Runs a graph by operators that vmap has rules for."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.prims.convert_element_type.default:
            return args[0].to(args[1])
        return super().call_function(target, args, kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = args[0]  # a list has a type of its own in graphs
        return result if isinstance(result, torch.Tensor) else list(result)


class _Scores:
    """The scores of each query and key, [B, H, M, N] in float32, or float64 of such operands."""

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        score_mod: torch.fx.GraphModule,
        block_mask: Any,
        scale: float,
        score_buffers: Any,
        mask_buffers: Any,
    ) -> None:
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        self.plain = _product(query.to(dtype), key.to(dtype).mT) * scale
        self.positions = [torch.arange(n, device=query.device) for n in self.plain.shape]
        modify = _over_scores(score_mod, prefix=(0,), suffix=(None,) * len(score_buffers))
        keep = _over_scores(block_mask[-1], prefix=(), suffix=(None,) * len(mask_buffers))
        modified = modify(self.plain, *self.positions, *score_buffers).to(dtype)
        self.kept = keep(*self.positions, *mask_buffers)
        self.masked = torch.where(self.kept, modified, -math.inf)


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of a [B, H, M, K] and b [B or 1, H / G, K, N]: G heads of a for each one of b."""
    batch, heads, rows, _ = a.shape
    few = b.shape[1]
    b = b.expand(batch, -1, -1, -1)
    return (a.reshape(batch, few, -1, a.shape[-1]) @ b).reshape(batch, heads, rows, -1)


def _transposed_product(a: torch.Tensor, b: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The transpose of a [B, H, M, N] times b [B, H, M, K], summed where `like` is shared.

    `like` is [B or 1, H / G, N, K]: the sum is over G heads, and the batch if it has one entry.
    """
    batch, few = a.shape[0], like.shape[1]
    a = a.reshape(batch, few, -1, a.shape[-1])
    result = a.mT @ b.reshape(batch, few, -1, b.shape[-1])
    return result.sum(0, keepdim=True) if statically_known_true(like.shape[0] != batch) else result


def _scatter(shape: list[int], indices: list[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """The gradient of a tensor that was read at `indices`, summed first where no index changes.

    An index is expanded to the shape of all scores; what it depends on has strides.
    """
    for dim in range(values.dim()):
        if all(index.stride(dim) == 0 for index in indices):
            values = values.sum(dim, keepdim=True)
            indices = [index.narrow(dim, 0, 1) for index in indices]
    zeros = torch.zeros(shape, dtype=values.dtype, device=values.device)
    return zeros.index_put(tuple(indices), values, accumulate=True)
