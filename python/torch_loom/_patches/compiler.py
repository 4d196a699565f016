# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: what it may trace of torch.loom, and what it asks of a device."""

from typing import Any

from .. import _torch_features
from ..integrations import import_hook


def apply() -> None:
    """Say what is constant and what is not to be traced, and answer what is asked of a device."""
    _mark_constants()
    _keep_from_dynamo()
    _answer_dynamo()


def _answer_dynamo() -> None:
    # Dynamo's list of devices has no entry for others to register by, and is imported with it.
    # Inductor registers backends when it lowers a graph: too late to choose how it is lowered.
    known = import_hook.Library(
        "torch",
        versions=(_torch_features.MINOR,),
        without="torch.compile(..., backend='aot_eager') needs none of it",
        patches={
            "torch._dynamo.device_interface": ".inductor.interface:register",
            "torch._dynamo.output_graph": ".inductor.stream_functions:pass_if_used",
            "torch._dynamo.trace_rules": ".inductor.stream_functions:name",
            "torch._dynamo.variables.torch": ".inductor.stream_functions:follow",
            "torch._dynamo.variables.user_defined": ".inductor.stream_functions:create",
            "torch._functorch._aot_autograd.graph_compile": ".inductor.stream_functions:keep_saved",
            "torch._functorch._aot_autograd.streams": ".inductor.stream_functions:estimate",
            "torch._inductor.decomposition": ".inductor.operators:keep",
            "torch._inductor.fx_passes.quantization": ".inductor.products:match_int8_weights",
            "torch._inductor.compile_fx": ".inductor.without_compiler:apply",
        },
    )
    import_hook.install((known,))


def _mark_constants() -> None:
    # torch.compile folds torch.cuda.is_available() and its like by name; what does not change in
    # the life of a process is marked here, or asking for it would end a graph.
    from .. import device

    for function in (device.is_available, device.device_count):
        function._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _keep_from_dynamo() -> None:
    # torch.compile knows the functions of cuda by name. It would trace ours, and then makes the
    # stream that was current while tracing a constant, and fake tensors of states of generators.
    # This is torch.compiler.disable without its import of torch._dynamo, which takes longer than
    # all else here.
    from torch._C._dynamo import eval_frame

    from .. import random, streams

    skip = eval_frame._FrameExecStrategy(
        eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
    )
    context = streams.StreamContext
    functions: list[Any] = [
        streams.current_stream,
        streams.default_stream,
        streams.set_stream,
        streams.stream,
        streams.Stream.__new__,
        streams.Event.__new__,
        streams._wrap,
        context.__init__,
        context.__enter__,
        context.__exit__,
        random._get_rng_state_offset,
        random._set_rng_state_offset,
        random._seed,
        random.get_rng_state,
        random.set_rng_state,
        random.get_rng_state_all,
        random.set_rng_state_all,
        random.manual_seed,
        random.manual_seed_all,
        random.seed,
        random.seed_all,
        random.initial_seed,
    ]
    # What is followed where it is called, by name.
    followed = (
        streams.current_stream,
        streams.stream,
        streams.Stream.__new__,
        streams.Event.__new__,
    )
    for function in functions:
        if function not in followed:
            function._torchdynamo_disable = True
        eval_frame.set_code_exec_strategy(function.__code__, skip)
