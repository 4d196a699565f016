# SPDX-License-Identifier: BSD-3-Clause
"""DTensor: how attention and recurrent cells of loom are sharded, context parallelism, too.

PyTorch has strategies for the fused attention of CUDA, and for what a cell on the cpu is made of.
Loom's operators are others. DTensor is not imported with torch, so this is registered when a
program imports it.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from .. import _torch_features
from .._replace import replace
from ..integrations import import_hook

_OUTPUTS = 9
"""Of the forward operator: output, logsumexp, and seven that are no tensors or scalars."""
_GRADIENTS = 4
_LOGSUMEXP = 7
"""Its place among the arguments of the backward operator."""


def apply() -> None:
    """Register the strategies when DTensor is imported."""
    known = import_hook.Library(
        "torch",
        versions=(_torch_features.MINOR,),
        without="torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
        patches={
            "torch.distributed.tensor._ops._matrix_ops": "._patches.sharding:register",
            "torch.distributed.tensor.experimental._context_parallel._sharding_rules": (
                "._patches.sharding:register_for_sequences"
            ),
            "torch.distributed.tensor.experimental._context_parallel._attention": (
                "._patches.sharding:register_rings"
            ),
        },
    )
    import_hook.install((known,))


def register(module: ModuleType) -> None:
    """Register how DTensor shards attention, by batch or by head, and cells, by batch."""
    for operator, strategy, static in (*_strategies(sequences=False), *_strategies_of_cells()):
        _register(operator, strategy, static)


def _register(operator: Any, strategy: Callable[[Any], Any], static: int) -> None:
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor._ops.utils import register_op_strategy

    register_op_strategy(operator, schema_info=RuntimeSchemaInfo(static))(strategy)


@contextlib.contextmanager
def _registered(operator: Any, strategy: Callable[[Any], Any], static: int) -> Iterator[Any]:
    """Within the context an operator has another strategy; gives the one that it had."""
    from torch.distributed.tensor import DTensor

    propagator = DTensor._op_dispatcher.sharding_propagator
    tables: tuple[dict[Any, Any], ...] = (
        propagator.op_strategy_funcs,
        propagator.op_to_schema_info,
    )
    before = tuple(table.get(operator) for table in tables)
    _register(operator, strategy, static)
    try:
        yield before
    finally:
        for table, known in zip(tables, before, strict=True):
            table.pop(operator, None)
            if known is not None:
                table[operator] = known


def register_for_sequences(module: ModuleType) -> None:
    """Have context parallelism shard loom's attention by sequence, too, while it is enabled."""
    original = module.register_cp_sharding_rules

    @functools.wraps(original)
    def register_cp_sharding_rules() -> None:
        is_first = not module._cp_strategy_contexts
        original()
        if not is_first:
            return
        for operator, strategy, static in _strategies(sequences=True):
            context = _registered(operator, strategy, static)
            module._original_strategies[operator] = context.__enter__()
            module._cp_strategy_contexts[operator] = context

    replace(module, "register_cp_sharding_rules", register_cp_sharding_rules)


def register_rings(module: ModuleType) -> None:
    """Have context parallelism pass keys and values of loom's attention from rank to rank."""
    forward, backward = _operators()

    def ring(
        mesh: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_bias: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        return_debug_mask: bool = False,
        *,
        scale: float | None = None,
    ) -> Any:
        if attn_bias is not None:
            raise NotImplementedError(
                "context_parallel: expected attention without attn_mask, got one; "
                "use is_causal=True, or compute this attention outside of context_parallel"
            )
        return module._templated_ring_attention(
            mesh.get_group(),
            2,
            forward,
            query=query,
            key=key,
            value=value,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
        )

    def ring_backward(mesh: Any, *arguments: Any, scale: float | None = None) -> Any:
        names = (argument.name for argument in backward._schema.arguments)
        named = dict(zip(names, arguments, strict=False))
        return module._templated_ring_attention_backward(
            mesh.get_group(), 2, backward, grad_out_name="grad_out", scale=scale, **named
        )

    rings: dict[Any, Callable[..., Any]] = {forward: ring, backward: ring_backward}

    def handle(operator: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        dispatcher = module.DTensor._op_dispatcher
        info = dispatcher.unwrap_to_op_info(operator, args, kwargs)
        dispatcher.sharding_propagator.propagate(info)
        sharding = info.output_sharding
        if sharding.needs_redistribute:
            raise RuntimeError(
                "context_parallel: expected queries, keys and values that are sharded alike, got "
                f"{info.schema}; shard all of them along the sequence"
            )
        results = rings[operator](info.compute_mesh, *info.local_args, **info.local_kwargs)
        return dispatcher.wrap(results, sharding.output_spec)

    module.custom_ops.update(dict.fromkeys(rings, handle))


def _operators() -> tuple[Any, Any]:
    aten = torch.ops.aten
    return (
        aten._scaled_dot_product_fused_attention_overrideable.default,
        aten._scaled_dot_product_fused_attention_overrideable_backward.default,
    )


def _strategies(sequences: bool) -> list[tuple[Any, Callable[[Any], Any], int]]:
    """Each operator, its strategy, and its first argument that is more than a sharded tensor."""
    forward, backward = _operators()
    return [
        (forward, functools.partial(_forward_strategy, sequences=sequences), 4),
        (backward, functools.partial(_backward_strategy, sequences=sequences), 5),
    ]


def _forward_strategy(schema: Any, sequences: bool) -> Any:
    query, mask = schema.args_schema[0], _argument(schema, 3)
    no_tensors = [None] * (_OUTPUTS - 2)
    choices = []
    for placement in _placements(query, sequences):
        inputs = [placement] * 3
        if mask is not None:
            inputs.append(_of_mask(placement, query, mask))
        choices.append([placement, placement, *no_tensors, *inputs])
    return _expand(schema, choices, schema.get_mesh_from_args(), _OUTPUTS)


def _backward_strategy(schema: Any, sequences: bool) -> Any:
    from torch.distributed.tensor.placement_types import Replicate

    query, mask = schema.args_schema[1], schema.args_schema[4]
    tensors = [place for place, given in enumerate(schema.args_schema) if _is_tensor(given)]
    scalars = [Replicate()] * sum(place > _LOGSUMEXP for place in tensors)
    choices = []
    for placement in _placements(query, sequences):
        masks = [] if mask is None else [_of_mask(placement, query, mask)]
        # Loom takes the fused operator only where the mask needs no gradient.
        gradients = [placement] * 3 + [None]
        choices.append([*gradients, *[placement] * 4, *masks, *[placement] * 2, *scalars])
    # The forward operator has looked at the mesh.
    return _expand(schema, choices, schema.get_mesh_from_args(validate=False), _GRADIENTS)


def _strategies_of_cells() -> list[tuple[Any, Callable[[Any], Any], int]]:
    aten = torch.ops.aten
    operators = {
        aten._thnn_fused_lstm_cell.default: 3,
        aten._thnn_fused_gru_cell.default: 2,
        aten._thnn_fused_lstm_cell_backward_impl.default: 3,
        aten._thnn_fused_gru_cell_backward.default: 5,
    }
    return [
        (operator, functools.partial(_cell_strategy, results=results), 0)
        for operator, results in operators.items()
    ]


def _cell_strategy(schema: Any, results: int) -> Any:
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard

    names = [argument.name for argument in schema.op._schema.arguments]
    # The last results of a backward operator are gradients of biases, if there are biases.
    biases = {3: 1, 5: 2}[results] if names[-1] == "has_bias" else 0
    has_biases = biases > 0 and schema.args_schema[-1]
    choices: list[list[Any]] = []
    for batch, summed in ((Replicate(), Replicate()), (Shard(0), Partial())):
        outputs = [batch] * (results - biases) + [summed if has_biases else None] * biases
        inputs = [
            Replicate() if name.endswith("_bias") else batch
            for name, given in zip(names, schema.args_schema, strict=False)
            if _is_tensor(given)
        ]
        choices.append([*outputs, *inputs])
    mesh = schema.get_mesh_from_args(validate=False)
    return expand_to_full_mesh_op_strategy(mesh, schema, choices, input_index=results)


def _placements(query: Any, sequences: bool) -> list[Any]:
    from torch.distributed.tensor.placement_types import Replicate, Shard

    dims = (0, 1, 2) if sequences else (0, 1)
    return [Replicate(), *(Shard(dim) for dim in dims if query.ndim == 4)]


def _of_mask(placement: Any, query: Any, mask: Any) -> Any:
    """A mask has the same shards as queries, and is whole where it is broadcast."""
    from torch.distributed.tensor.placement_types import Replicate, Shard

    if not placement.is_shard():
        return Replicate()
    dim = placement.dim - (query.ndim - mask.ndim)
    is_broadcast = dim < 0 or mask.shape[dim] != query.shape[placement.dim]
    return Replicate() if is_broadcast else Shard(dim)


def _expand(schema: Any, choices: list[list[Any]], mesh: Any, outputs: int) -> Any:
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    first = 0 if outputs == _OUTPUTS else 1
    query, key = schema.args_schema[first : first + 2]
    is_grouped = query.shape[1:2] != key.shape[1:2]

    def keeps_groups(inputs: list[Any], _: Any) -> bool:
        # Each rank needs the keys of its own queries, which uneven shards do not have.
        shards = 1
        for dim, placement in enumerate(inputs[first].placements):
            shards *= mesh.size(dim) if placement.is_shard(1) else 1
        return not is_grouped or all(heads.shape[1] % shards == 0 for heads in (query, key))

    has_new_name = _torch_features.FULL_MESH_FILTER.is_there()
    name = "full_mesh_strategy_filter" if has_new_name else "is_valid_strategy_cb"
    named: dict[str, Any] = {"input_index": outputs, name: keeps_groups}
    return expand_to_full_mesh_op_strategy(mesh, schema, choices, **named)


def _argument(schema: Any, place: int) -> Any:
    return schema.args_schema[place] if place < len(schema.args_schema) else None


def _is_tensor(given: Any) -> bool:
    from torch.distributed.tensor._op_schema import OpStrategy

    return isinstance(given, OpStrategy)
