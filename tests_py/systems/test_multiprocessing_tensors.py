# SPDX-License-Identifier: BSD-3-Clause
"""torch.multiprocessing: tensors and modules sent between processes, pools, spawn and Hogwild."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

# Both are torch's own, once in a process.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta state"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]

# One server that has imported torch, and used no device, makes the children of most tests.
context = mp.get_context("forkserver")
context.set_forkserver_preload(["torch"])


@pytest.fixture(scope="module")
def pool():
    # Unlike a multiprocessing.Pool, it says so when its process dies.
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        yield pool


def host(x):
    """The values of anything that a test sends, as a dense tensor of the cpu."""
    if isinstance(x, torch.UntypedStorage):
        return torch.tensor(x.tolist())
    x = x.detach()
    if x.is_nested:
        x = x.values()
    return (x.to_dense() if x.layout != torch.strided else x).cpu()


def look_and_return(x):
    look = (type(x), str(x.device), getattr(x, "requires_grad", None))
    layout = getattr(x, "layout", None)
    stride = x.stride() if layout is torch.strided and not x.is_nested else None
    return (*look, layout, stride, host(x).tolist()), x


def plain():
    return torch.arange(12.0).view(3, 4)


KINDS = {
    "dense": lambda d: plain().to(d),
    "transposed": lambda d: plain().to(d).t(),
    "stepped": lambda d: plain().to(d)[:, 1::2],
    "expanded": lambda d: plain().to(d)[1].expand(5, 4),
    "scalar": lambda d: plain().to(d)[2, 3],
    "empty": lambda d: torch.empty(0, 3, device=d),
    "bool": lambda d: plain().to(d) > 4,
    "bfloat16": lambda d: plain().to(d).bfloat16(),
    "complex": lambda d: torch.complex(plain(), -plain()).to(d),
    "parameter": lambda d: nn.Parameter(plain().to(d)),
    "frozen parameter": lambda d: nn.Parameter(plain().to(d), requires_grad=False),
    "buffer": lambda d: nn.Buffer(plain().to(d)),
    "requires grad": lambda d: plain().to(d).requires_grad_(),
    "coo": lambda d: plain().to(d).to_sparse(),
    "csr": lambda d: plain().to(d).to_sparse_csr(),
    "csc": lambda d: plain().to(d).to_sparse_csc(),
    "storage": lambda d: plain().to(d).untyped_storage(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_arrives_as_it_was_sent(pool, kind):
    sent = KINDS[kind]("loom:1")
    seen, back = pool.submit(look_and_return, sent).result()
    expected, _ = look_and_return(sent)
    assert seen == expected
    assert seen[1] == "loom:1"
    assert type(back) is type(sent)
    assert str(back.device) == "loom:1"
    assert torch.equal(host(back), host(KINDS[kind]("cpu")))


def zero_first(tensors):
    tensors[0].zero_()
    return [x.cpu() for x in tensors]


def test_views_of_one_message_share_their_memory(pool):
    x = plain().to("loom")
    a, b = pool.submit(zero_first, [x, x[1]]).result()
    assert a.eq(0).all()
    assert b.eq(0).all()
    assert torch.equal(x.cpu(), plain())  # the sender's memory is its own


def tied(module):
    return module[0].weight is module[1].weight, module


def test_tied_modules_stay_tied(pool):
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)).to("loom:1")
    module[1].weight = module[0].weight
    there, back = pool.submit(tied, module).result()
    assert there
    assert back[0].weight is back[1].weight
    x = torch.randn(4, 3, device="loom:1")
    assert torch.equal(module.eval()(x).cpu(), back.eval()(x).cpu())


def test_results_inside_a_graph_are_refused():
    x = torch.ones(3, device="loom", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        ForkingPickler.dumps(x)


@pytest.mark.thorough
def test_the_file_system_strategy_works_too(check):
    check(
        """
        import pickle, torch
        import torch.multiprocessing as mp
        from multiprocessing.reduction import ForkingPickler
        mp.set_sharing_strategy("file_system")
        x = torch.arange(5.0, device="loom:1")
        y = pickle.loads(ForkingPickler.dumps(x))
        assert y.device == x.device and torch.equal(y.cpu(), x.cpu())
        """
    )


@pytest.mark.limit("share_memory_: device memory is private to its process; torch has no IPC hook")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, device="loom"),
        lambda: torch.ones(3, device="loom").untyped_storage(),
        lambda: nn.Linear(2, 2).to("loom"),
    ],
    ids=["tensor", "storage", "module"],
)
def test_device_memory_is_not_shared(make):
    value = make()
    with pytest.raises(RuntimeError, match=r"got loom:0: device memory is private .* on the cpu"):
        value.share_memory() if isinstance(value, nn.Module) else value.share_memory_()
    if not isinstance(value, nn.Module):
        assert not value.is_shared()


@pytest.mark.limit("events and streams belong to the process that made them; torch has no IPC hook")
@pytest.mark.parametrize("make", [torch.loom.Event, torch.loom.Stream], ids=["event", "stream"])
def test_events_and_streams_are_not_sent(make):
    with pytest.raises(TypeError, match="cannot pickle"):
        ForkingPickler.dumps(make())


def double(incoming, outgoing):
    while (x := incoming.recv()) is not None:
        outgoing.put(x * 2)
        incoming.send("sent")
    outgoing.close()


def test_pipes_and_queues():
    ours, theirs = context.Pipe()
    queue = context.Queue()
    process = context.Process(target=double, args=(theirs, queue))
    process.start()
    for device in ("loom:0", "loom:1"):
        ours.send(plain().to(device))
        doubled = queue.get()
        assert ours.recv() == "sent"
        assert str(doubled.device) == device
        assert torch.equal(doubled.cpu(), plain() * 2)
    ours.send(None)
    process.join()
    assert process.exitcode == 0


def tell(queue, tensors, views, module, parameter, storage, shared):
    views[0].zero_()
    seen = [(type(x), str(getattr(x, "device", "")), host(x).tolist()) for x in tensors]
    tied = module[0].weight is module[1].weight
    shared.add_(1)
    queue.put((seen, views[1].tolist(), tied, str(parameter.device), host(storage).tolist()))


def check_arguments(context):
    """What a process gets as it starts: the one that is started at once, and one that is not."""
    queue = context.SimpleQueue()
    tensors = [make("loom:1") for kind, make in KINDS.items() if kind != "storage"]
    x = plain().to("loom")
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to("loom:1")
    module[1].weight = module[0].weight
    storage = KINDS["storage"]("loom")
    shared = torch.zeros(3)
    arguments = (queue, tensors, [x[1], x], module, nn.Parameter(x), storage, shared)
    processes = [context.Process(target=tell, args=arguments) for _ in range(2)]
    expected = [(type(x), "loom:1", host(x).tolist()) for x in tensors]
    zeroed = plain()
    zeroed[1] = 0
    for process in processes:
        process.start()
        answer = queue.get()
        process.join()
        assert process.exitcode == 0
        assert answer == (expected, zeroed.tolist(), True, "loom:0", host(storage).tolist())
    assert shared.tolist() == [2] * 3  # memory of the cpu is shared as ever
    assert torch.equal(x.cpu(), plain())


def test_arguments_of_a_process():
    check_arguments(context)


@pytest.mark.slow
def test_arguments_of_a_spawned_process():
    check_arguments(mp.get_context("spawn"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_arguments_in_shared_files(method):
    strategy = mp.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    try:
        check_arguments(mp.get_context(method))
    finally:
        mp.set_sharing_strategy(strategy)


def look_at_rank(rank, x, queue):
    queue.put((rank, str(x.device), x.tolist()))


def test_arguments_of_ranks():
    queue = context.SimpleQueue()
    x = plain().to("loom:1")
    mp.start_processes(look_at_rank, (x, queue), nprocs=2, start_method="forkserver")
    assert sorted(queue.get() for _ in range(2)) == [
        (rank, "loom:1", plain().tolist()) for rank in range(2)
    ]


def square(x):
    return x * x


def test_a_pool_maps_tensors_of_two_devices():
    xs = [plain().to(f"loom:{i % 2}") for i in range(6)]
    with context.Pool(1) as pool:
        ys = pool.map(square, xs)
    assert [y.device for y in ys] == [x.device for x in xs]
    assert all(torch.equal(y.cpu(), plain() ** 2) for y in ys)


def fail(index):
    table = torch.ones(3, device="loom")
    table[torch.tensor([index], device="loom")].sum().item()


def test_errors_of_kernels_come_back_from_a_pool(pool):
    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        pool.submit(fail, 7).result()
    fail(1)


# Hogwild, as in the tutorial: the shared model is on the cpu, each process computes on its device.


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 4, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])


def train(rank, shared, steps):
    device = torch.device("loom", rank)
    local = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.1)
    x, y = (part[rank::2].to(device) for part in data())
    for _ in range(steps):
        local.load_state_dict(shared.state_dict())
        local.zero_grad()
        nn.functional.mse_loss(local(x), y).backward()
        for ours, theirs in zip(shared.parameters(), local.parameters(), strict=True):
            ours.grad = theirs.grad.cpu()
        optimizer.step()


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_hogwild_trains_a_shared_model(method):
    torch.manual_seed(0)
    shared = nn.Linear(4, 1)
    shared.share_memory()
    x, y = data()
    before = nn.functional.mse_loss(shared(x), y).item()
    mp.start_processes(train, (shared, 40), nprocs=2, start_method=method)
    assert nn.functional.mse_loss(shared(x), y).item() < 0.01 * before


def out_of_range(rank):
    fail(rank + 5)


def test_the_first_error_of_a_rank_is_raised():
    with pytest.raises(mp.ProcessRaisedException, match=r"out of (bounds|range)"):
        mp.start_processes(out_of_range, nprocs=1, start_method="forkserver")
