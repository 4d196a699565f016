# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: flex_attention, forward and backward, beside eager cpu."""

import pytest
import torch
from compile_support import LOOM, assert_equal, compile_and_compare, to
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning"),
    pytest.mark.usefixtures("no_fallback"),
]

BATCH, HEADS, QUERIES, KEYS = 2, 4, 40, 56


def operands(*, key_heads=HEADS, key_batch=BATCH, dtype=torch.float32, sizes=(16, 16), grad=False):
    shapes = [
        (BATCH, HEADS, QUERIES, sizes[0]),
        (key_batch, key_heads, KEYS, sizes[0]),
        (key_batch, key_heads, KEYS, sizes[1]),
    ]
    return [torch.randn(shape, dtype=dtype).requires_grad_(grad) for shape in shapes]


def causal(b, h, m, n):
    return m >= n


def window(b, h, m, n):
    return (m - n).abs() <= 5 + 3 * h


def upper(b, h, m, n):  # the last rows see no key
    return n >= m + KEYS - QUERIES + 3


def padding(b, h, m, n):
    return n < KEYS - 9 * b


MASKS = {"none": None, "causal": causal, "window": window, "upper": upper, "padding": padding}


def plain(score, b, h, m, n):
    return score


def distance(score, b, h, m, n):
    return score - (m - n).abs() / (1 + h)


def capped(score, b, h, m, n):
    return 2 * torch.tanh(score / 2)


def with_constants(score, b, h, m, n):
    return torch.where((m + n) % 2 == 0, score, torch.tensor(-1.5, device=score.device))


MODS = {
    "plain": plain,
    "distance": distance,
    "capped": capped,
    "with constants": with_constants,
}
PAIRS = [
    *(("plain", mask) for mask in MASKS),
    *((mod, "none") for mod in ("distance", "capped")),
    *((mod, "causal") for mod in ("distance", "capped", "with constants")),
    ("distance", "upper"),
]
every_pair = pytest.mark.parametrize(
    ("mod", "mask"), [(MODS[mod], MASKS[mask]) for mod, mask in PAIRS], ids=map(" ".join, PAIRS)
)


def block_mask_of(mask, device, batch=None):
    if mask is None:
        return None
    batch, heads = BATCH if mask is padding else batch, HEADS if mask is window else None
    return create_block_mask(mask, batch, heads, QUERIES, KEYS, device=device)


def attention(mod=plain, mask=None, **options):
    def function(q, k, v):
        return flex_attention(
            q, k, v, score_mod=mod, block_mask=block_mask_of(mask, q.device), **options
        )

    return function


def reference(q, k, v, mod=plain, mask=None):
    """The output, the logarithms of sums and the largest scores, by broadcasting."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    positions = [
        torch.arange(size).reshape([-1 if i == dim else 1 for i in range(4)])
        for dim, size in enumerate(scores.shape)
    ]
    scores = mod(scores, *positions)
    kept = torch.ones(()).bool() if mask is None else mask(*positions)
    scores = scores.masked_fill(~kept, -torch.inf)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    return weights @ v, scores.masked_fill(empty, -torch.inf).logsumexp(-1), scores.amax(-1)


def compare_gradients(function, expected, inputs, **tolerances):
    """Results and gradients of a compiled function of loom with those of another one on cpu."""
    on_cpu, on_loom = to(inputs, "cpu"), to(inputs, LOOM)
    compiled = torch.compile(function, fullgraph=True)
    result, other = compiled(*on_loom), expected(*on_cpu)
    weights = torch.linspace(-1, 1, other.numel()).reshape(other.shape).to(other.dtype)
    result.backward(weights.to(LOOM))
    other.backward(weights)
    pairs = [(t.grad, u.grad) for t, u in zip(on_loom, on_cpu, strict=True) if t.requires_grad]
    assert_equal(result, other, **tolerances)
    assert_equal([a for a, _ in pairs], [b for _, b in pairs], **tolerances)


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@every_pair
def test_results_are_those_of_eager_cpu(mod, mask):
    compile_and_compare(
        attention(mod, mask), *operands(), kernels=(mod, mask) != (plain, None), tolerances=CLOSE
    )


@every_pair
def test_gradients(mod, mask):
    compare_gradients(
        attention(mod, mask),
        lambda q, k, v: reference(q, k, v, mod, mask)[0],
        operands(grad=True),
        **CLOSE,
    )


def test_rows_without_keys_are_zero_and_take_no_gradient():
    inputs = to(operands(grad=True), LOOM)
    function = attention(mask=upper, return_aux=AuxRequest(lse=True))
    output, aux = torch.compile(function, fullgraph=True)(*inputs)
    empty = slice(QUERIES - 3, None)
    assert torch.equal(output[:, :, empty], torch.zeros_like(output[:, :, empty]))
    assert (aux.lse[:, :, empty] == -torch.inf).all()
    assert aux.lse[:, :, : QUERIES - 3].isfinite().all()
    output.sum().backward()
    assert all(t.grad.isfinite().all() for t in inputs)
    assert torch.equal(inputs[0].grad[:, :, empty], torch.zeros_like(output[:, :, empty]))


@pytest.mark.parametrize(("mod", "mask"), [(plain, upper), (capped, causal)])
def test_logarithms_and_largest_scores(mod, mask):
    inputs = operands()
    function = attention(mod, mask, return_aux=AuxRequest(lse=True, max_scores=True))
    output, aux = torch.compile(function, fullgraph=True)(*to(inputs, LOOM))
    assert_equal([output, aux.lse, aux.max_scores], list(reference(*inputs, mod, mask)), **CLOSE)


@pytest.mark.parametrize(("mod", "mask"), [(plain, causal), (capped, None)])
def test_gradients_of_logarithms(mod, mask):
    def function(q, k, v):
        output, aux = attention(mod, mask, return_aux=AuxRequest(lse=True))(q, k, v)
        return torch.cat([output, aux.lse.unsqueeze(-1)], -1)

    def expected(q, k, v):
        output, logarithms, _ = reference(q, k, v, mod, mask)
        return torch.cat([output, logarithms.unsqueeze(-1)], -1)

    compare_gradients(function, expected, operands(grad=True), **CLOSE)


# What a score function reads at the positions of a score.
TABLES = {
    "heads": ((HEADS,), lambda t, b, h, m, n: t[h] * (m - n)),
    "distances": ((QUERIES + KEYS,), lambda t, b, h, m, n: t[m - n + KEYS]),
    "keys": ((BATCH, KEYS), lambda t, b, h, m, n: t[b, n]),
    "scores": (
        (BATCH, HEADS, QUERIES, KEYS),
        lambda t, b, h, m, n: t[b, h, m, n],
    ),
    "one": ((1,), lambda t, b, h, m, n: t[0] * h),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_are_learned(name):
    shape, read = TABLES[name]

    def mod_of(table):
        return lambda score, b, h, m, n: score + read(table, b, h, m, n)

    compare_gradients(
        lambda q, k, v, t: attention(mod_of(t), causal)(q, k, v),
        lambda q, k, v, t: reference(q, k, v, mod_of(t), causal)[0],
        [*operands(grad=True), torch.randn(shape).mul(0.1).requires_grad_()],
        rtol=1e-4,
        atol=1e-4,  # sums over thousands of scores
    )


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_mask_that_reads_a_tensor():
    documents = torch.arange(KEYS) // 17

    def function(q, k, v, documents):
        def same(b, h, m, n):
            return documents[m] == documents[n]

        return attention(mask=same)(q, k, v)

    compile_and_compare(function, *operands(), documents, tolerances=CLOSE)


@pytest.mark.parametrize(
    ("key_heads", "mod", "mask"), [(1, plain, None), (2, plain, window), (2, distance, window)]
)
def test_grouped_queries(key_heads, mod, mask):
    compare_gradients(
        attention(mod, mask, enable_gqa=True),
        lambda q, k, v: reference(q, k, v, mod, mask)[0],
        operands(key_heads=key_heads, grad=True),
        **CLOSE,
    )


@pytest.mark.parametrize("mod", [plain, distance])
def test_keys_that_all_batches_share(mod):
    def function(q, k, v):
        return flex_attention(
            q, k, v, score_mod=mod, block_mask=block_mask_of(padding, q.device, BATCH)
        )

    compare_gradients(
        function,
        lambda q, k, v: reference(q, k, v, mod, padding)[0],
        operands(key_batch=1, grad=True),
        **CLOSE,
    )


@pytest.mark.parametrize("mask", [None, causal])
def test_values_of_another_size_and_a_scale_of_ones_own(mask):
    compile_and_compare(
        attention(mask=mask, scale=0.4), *operands(sizes=(16, 24)), tolerances=CLOSE
    )
    compile_and_compare(
        attention(mask=mask, scale=0.4), *operands(), kernels=mask is not None, tolerances=CLOSE
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-6), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)],
    ids=str,
)
@pytest.mark.parametrize("mod", [plain, distance])
def test_data_types(dtype, tolerance, mod):
    tolerances = {"rtol": tolerance, "atol": tolerance}
    inputs = operands(dtype=dtype, grad=True)
    compile_and_compare(
        attention(mod, causal), *(t.detach() for t in inputs), tolerances=tolerances
    )
    compare_gradients(
        attention(mod, causal),
        lambda q, k, v: reference(q.double(), k.double(), v.double(), mod, causal)[0].to(dtype),
        inputs,
        **tolerances,
    )


@pytest.mark.parametrize("mod", [plain, distance])
def test_autocast(mod):
    inputs = operands()

    def function(q, k, v):
        with torch.autocast("loom", dtype=torch.bfloat16):
            return attention(mod, causal)(q, k, v)

    result = torch.compile(function, fullgraph=True)(*to(inputs, LOOM))
    assert result.dtype == torch.bfloat16
    assert_equal(result.float(), reference(*inputs, mod, causal)[0], rtol=4e-2, atol=4e-2)


@pytest.mark.parametrize("mod", [plain, distance])
@pytest.mark.parametrize("masked", [False, True])
def test_shapes_may_change(mod, masked):
    def function(q, k, v):
        mask = None
        if masked:
            mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device=q.device)
        return flex_attention(q, k, v, score_mod=mod, block_mask=mask)

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for batch, queries, keys in ((2, 20, 30), (3, 31, 17), (4, 50, 50)):
        q = torch.randn(batch, 3, queries, 16, requires_grad=True)
        k, v = torch.randn(2, batch, 3, keys, 16)
        on_loom = to([q, k, v], LOOM)
        result = compiled(*on_loom)
        expected = reference(q, k, v, mod, causal if masked else None)[0]
        assert_equal(result, expected, **CLOSE)
        gradients = [
            torch.autograd.grad(r.sum(), t) for r, t in ((result, on_loom[0]), (expected, q))
        ]
        assert_equal(*gradients, **CLOSE)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("mod", [plain, distance])
def test_layouts_of_results(mod):
    def function(x):  # [batch, position, head, element], as a projection leaves them
        q, k, v = (t.transpose(1, 2) for t in x.unbind())
        return flex_attention(q, k, v, score_mod=mod)

    x = torch.randn(3, BATCH, QUERIES, HEADS, 16)
    result = torch.compile(function, fullgraph=True)(x.to(LOOM))
    expected = function(x)
    assert result.stride() == expected.stride()
    assert_equal(result, expected, **CLOSE)


def test_attention_that_is_only_masked_makes_no_matrix_of_scores():
    shape = (1, 8, 512, 32)
    inputs = [torch.randn(shape, device=LOOM, requires_grad=True) for _ in range(3)]
    mask = create_block_mask(causal, None, None, 512, 512, device=LOOM)
    compiled = torch.compile(lambda *t: flex_attention(*t, block_mask=mask), fullgraph=True)
    compiled(*inputs).sum().backward()
    torch.loom.synchronize()
    torch.loom.reset_peak_memory_stats()
    before = torch.loom.memory_allocated()
    compiled(*inputs).sum().backward()
    torch.loom.synchronize()
    of_scores = 8 * 512 * 512 * 4
    assert torch.loom.max_memory_allocated() - before < of_scores


def test_scores_that_are_modified_lie_in_memory_once():
    inputs = to(operands(), LOOM)
    _, sources = run_and_get_code(torch.compile(attention(capped, causal)), *inputs)
    made = f"loom_empty(({BATCH}, {HEADS}, {QUERIES}, {KEYS})"
    flat = f"loom_empty(({BATCH * HEADS}, {QUERIES}, {KEYS})"
    assert sources[0].count(made) + sources[0].count(flat) == 1


def test_several_in_one_graph():
    def function(q, k, v):
        x = attention(distance, causal)(q, k, v)
        y = attention(capped, window)(q, k, v)
        return x + attention(mask=causal)(q, k, v) * y

    compile_and_compare(function, *operands(), tolerances=CLOSE)


def test_a_block_mask_is_compiled_too():
    compiled = torch.compile(create_block_mask, fullgraph=True)
    mine = compiled(window, None, HEADS, 300, 300, device="loom")
    expected = create_block_mask(window, None, HEADS, 300, 300, device="cpu")
    assert mine.kv_indices.is_loom
    assert torch.equal(mine.to_dense().cpu(), expected.to_dense())


def test_replays(replays):
    inputs = operands()
    compiled = torch.compile(attention(distance, causal), mode="reduce-overhead", fullgraph=True)
    for _ in range(5):
        result = compiled(*to(inputs, LOOM))
    assert replays
    assert_equal(result, attention(distance, causal)(*inputs), **CLOSE)


def test_compiled_attention_on_cpu_stays_pytorchs():
    q, k, v = operands()
    result, sources = run_and_get_code(torch.compile(attention(distance)), q, k, v)
    assert "loom" not in sources[0]
    # No values: without loom, too, PyTorch's kernel gives wrong ones at such lengths on AVX2.
    assert (result.device, result.shape) == (q.device, (BATCH, HEADS, QUERIES, 16))
