# SPDX-License-Identifier: BSD-3-Clause
"""Forked children: after the first use each operation raises the one error, and nothing hangs.

One program forks a child for each operation; its parent has modules, optimisers, graphs, streams
and events, which the children inherit."""

import json
import os

import pytest

PARENT = """
    import copy, json, os, signal, sys, torch, torch_loom
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader, TensorDataset

    device = "loom"
    x = torch.randn(64, 64, device=device)
    big = torch.randn(300, 300, device=device)
    image = torch.randn(2, 8, 16, 16, device=device)
    tokens = torch.randint(0, 50, (2, 10)).to(device)
    modules = {
        "linear": (nn.Linear(64, 64), x),
        "large linear": (nn.Linear(300, 300), big),
        "conv": (nn.Conv2d(8, 8, 3), image),
        "transposed conv": (nn.ConvTranspose2d(8, 8, 3), image),
        "depthwise": (nn.Conv2d(8, 8, 3, groups=8), image),
        "batch norm": (nn.BatchNorm2d(8), image),
        "layer norm": (nn.LayerNorm(64), x),
        "group norm": (nn.GroupNorm(2, 8), image),
        "embedding": (nn.Embedding(50, 16), tokens),
        "embedding bag": (nn.EmbeddingBag(50, 16), tokens),
        "lstm": (nn.LSTM(64, 32), x[None]),
        "gru": (nn.GRU(64, 32), x[None]),
        "dropout": (nn.Dropout(), x),
        "max pool": (nn.MaxPool2d(2), image),
        "average pool": (nn.AdaptiveAvgPool2d(1), image),
        "relu": (nn.ReLU(), x),
        "gelu": (nn.GELU(), x),
        "softmax": (nn.Softmax(-1), x),
        "transformer": (nn.TransformerEncoderLayer(64, 4, batch_first=True), x[None]),
        "upsample": (nn.Upsample(scale_factor=2, mode="bilinear"), image),
        "sequential": (nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), x),
    }
    operations = {}
    for name, (module, argument) in modules.items():
        module = module.to(device)
        operations["forward " + name] = lambda m=module, a=argument: m(a)
        operations["inference " + name] = torch.no_grad()(lambda m=module, a=argument: m(a))
    linear, conv, lstm = (modules[name][0] for name in ("linear", "conv", "lstm"))
    used = linear(x)  # its parameters have their nodes of autograd
    losses = {
        "product": used.relu().sum(),
        "conv": conv(image).sum(),
        "lstm": lstm(x[None])[0].sum(),
    }
    for name, loss in losses.items():
        operations["backward " + name] = loss.backward
    parameter = nn.Parameter(torch.randn(8, 8, device=device))
    parameter.grad = torch.ones_like(parameter)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "NAdam", "RAdam",
                 "Adamax", "ASGD", "Rprop", "LBFGS"):
        optimizer = getattr(torch.optim, name)([parameter])
        closure = (lambda: parameter.sum(),) if name == "LBFGS" else ()
        operations["step " + name] = lambda o=optimizer, c=closure: o.step(*c)
        operations["zero_grad " + name] = lambda o=optimizer: o.zero_grad(set_to_none=False)
    for name in ("SGD", "Adam", "AdamW"):
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1, fused=True)
        operations["fused step " + name] = optimizer.step
    for name in ("empty", "zeros", "ones", "rand", "randn"):
        operations["torch." + name] = lambda n=name: getattr(torch, n)(3, device=device)
    generator = torch.Generator(device=device)
    graph, stream = torch.accelerator.Graph(), torch.loom.Stream()
    with stream, graph:
        x + 1
    event = torch.loom.Event()
    event.record()
    def capture():
        with stream, torch.accelerator.Graph():
            x + 1
    def under_autocast():
        with torch.autocast("loom", torch.bfloat16):
            return x @ x
    compiled = torch.compile(lambda t: (t * 2 + 1).relu(), backend="aot_eager")
    compiled(x)
    operations |= {
        "torch.tensor": lambda: torch.tensor([1.0, 2.0], device=device),
        "torch.arange": lambda: torch.arange(5, device=device),
        "torch.randint": lambda: torch.randint(0, 5, (3,), device=device),
        "torch.randperm": lambda: torch.randperm(9, device=device),
        "full_like": lambda: torch.full_like(x, 2),
        "module.to": lambda: nn.Linear(3, 3).to(device),
        "module on the device": lambda: nn.Linear(3, 3, device=device),
        "load_state_dict": lambda: linear.load_state_dict(nn.Linear(64, 64).state_dict()),
        "to": lambda: torch.ones(3).to(device),
        "cpu": x.cpu,
        "copy from the host": lambda: x.copy_(torch.ones(64, 64)),
        "copy to the host": lambda: torch.ones(64, 64).copy_(x),
        "non-blocking copy": lambda: big.copy_(torch.ones(300, 300), non_blocking=True),
        "clone": x.clone,
        "deepcopy": lambda: copy.deepcopy(x),
        "item": lambda: x[0, 0].item(),
        "tolist": x.tolist,
        "repr": lambda: repr(x),
        "bool": lambda: bool(x[0, 0] > 0),
        "numpy": lambda: x.cpu().numpy(),
        "save": lambda: torch.save(x, os.devnull),
        "nonzero": x.nonzero,
        "mask": lambda: x[x > 0],
        "setitem": lambda: x.__setitem__(0, 1.0),
        "add": lambda: x + 1,
        "add_": lambda: x.add_(1),
        "out": lambda: torch.mul(x, 2, out=x),
        "mm": lambda: x @ x,
        "large mm": lambda: big @ big,
        "sum": x.sum,
        "sort": x.sort,
        "cat": lambda: torch.cat([x, x]),
        "fft": lambda: torch.fft.fft(x),
        "fallback": lambda: torch.linalg.svd(x),
        "attention": lambda: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        "loss": lambda: F.cross_entropy(x, torch.zeros(64, dtype=torch.long, device=device)),
        "foreach": lambda: torch._foreach_add_([x, x], 1.0),
        "clip": lambda: nn.utils.clip_grad_norm_([parameter], 1.0),
        "bernoulli": lambda: torch.bernoulli(x.sigmoid()),
        "normal_": x.normal_,
        "a generator": lambda: torch.Generator(device=device),
        "a generator's seed": lambda: generator.manual_seed(3),
        "a generator's state": generator.get_state,
        "get_rng_state": torch.loom.get_rng_state,
        "autocast": under_autocast,
        "compiled code": lambda: compiled(x),
        "checkpoint": lambda: checkpoint(linear, x, use_reentrant=False),
        "vmap": lambda: torch.vmap(lambda t: t * 2)(x),
        "grad": lambda: torch.func.grad(lambda t: t.sum())(x),
        "sparse": x.to_sparse,
        "data loader": lambda: next(iter(DataLoader(TensorDataset(x), batch_size=2))),
        "pinning data loader": lambda: next(
            iter(DataLoader(TensorDataset(torch.ones(4)), pin_memory=True))
        ),
        "dlpack": lambda: torch.from_dlpack(x).sum(),
        "pin_memory": lambda: torch.ones(3).pin_memory(),
        "replay": graph.replay,
        "capture": capture,
        "stream.synchronize": stream.synchronize,
        "stream.query": stream.query,
        "a stream": torch.loom.Stream,
        "stream.wait_stream": lambda: stream.wait_stream(torch.loom.default_stream()),
        "with stream": lambda: stream.__enter__(),
        "event.record": event.record,
        "event.synchronize": event.synchronize,
        "event.query": event.query,
        "event.wait": event.wait,
        "a timed event": lambda: torch.loom.Event(enable_timing=True).record(),
        "synchronize": torch.loom.synchronize,
        "accelerator.synchronize": torch.accelerator.synchronize,
        "empty_cache": torch.loom.empty_cache,
        "memory_allocated": torch.loom.memory_allocated,
    }
    if torch_loom._C._memory_is_unified():  # otherwise there are no views, in any process
        ones = torch.ones(3)
        operations |= {
            "view on the host": lambda: torch.from_dlpack(x, device="cpu", copy=False),
            "view of the host": lambda: torch.from_dlpack(ones, device=device, copy=False),
        }
    torch.loom.synchronize()

    def outcome(operation):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                operation()
                text = "nothing is raised"
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
                if isinstance(error, RuntimeError) and "forked subprocess" in text:
                    text = "refused"
            os.write(write, text.encode()[:1000])
            os._exit(0)
        os.close(write)
        with open(read) as pipe:
            text = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return text if code == 0 else f"ended with {code}"

    part, parts = int(sys.argv[1]), int(sys.argv[2])
    chosen = list(operations)[part::parts]
    print(json.dumps({name: outcome(operations[name]) for name in chosen}))
    assert x.sum().isfinite().item()  # the parent goes on
"""


def test_each_operation_is_refused(check) -> None:
    outcomes = json.loads(check(PARENT, "0", "1").out)
    assert len(outcomes) > 120
    assert {name: text for name, text in outcomes.items() if text != "refused"} == {}


@pytest.mark.skipif(os.environ.get("LOOM_MEMORY") == "isolated", reason="there are no views")
def test_memory_of_the_device_is_not_inherited(run) -> None:
    done = run(
        """
        import os, torch, torch_loom
        x = torch.ones(1000, device="loom")
        view = torch.from_dlpack(x, device="cpu", copy=False)
        assert view.sum() == 1000
        child = os.fork()
        if child == 0:
            view.sum()  # the parent's memory, which goes on changing
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        x.add_(1)
        assert x.sum().item() == 2000
        """
    )
    assert done.code == 0, done.err
    assert done.out.split() == ["-11"]
    assert "forked after its parent had used loom" in done.err
    assert "before the fork" in done.err


def test_what_the_parent_writes_is_not_copied_for_children(check) -> None:
    # Resident memory that no other process shares: of the parent, after children were forked.
    check(
        """
        import os, signal, torch, torch_loom
        x = torch.ones(25_000_000, device="loom")
        torch.loom.synchronize()
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
        x.add_(1)
        torch.loom.synchronize()
        def resident(process):
            with open(f"/proc/{process}/smaps_rollup") as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("Rss"))
        sizes = [resident(process) for process in [os.getpid(), *children]]
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert max(sizes[1:]) < sizes[0] - 90_000, sizes
        """
    )


def test_pinned_memory_is_inherited_as_memory_of_the_host(check) -> None:
    check(
        """
        import os, torch, torch_loom
        pinned = torch.arange(1000.0).pin_memory()
        pinned.to("loom").sum().item()
        child = os.fork()
        if child == 0:
            os._exit(0 if pinned.sum() == 499500 and not pinned.is_pinned() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )
