# SPDX-License-Identifier: BSD-3-Clause
"""Process size: ever new shapes leave it as large as it was after the first of them."""

import pytest

pytestmark = pytest.mark.thorough

# Lengths in an order in which the first ones are as long as the others.
PROGRAM = """
    import ctypes, os, random, torch, torch_loom
    from torch.nn import functional as F

    torch.manual_seed(0)
    dtype, device = torch.bfloat16, "loom"
    lstm = torch.nn.LSTM(32, 32).to(device, dtype)
    convolution = torch.nn.Conv1d(32, 32, 3, padding=1).to(device, dtype)
    linear = torch.nn.Linear(32, 48).to(device, dtype)

    def attention(length):
        q = torch.randn(1, 2, length, 64, device=device, dtype=dtype)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    # Half of all lengths are odd: those of rows, and of what is summed up.
    def products(length):
        others = 16 + length * 381 % 997
        q = torch.randn(2, length, 64, device=device, dtype=dtype)
        k = torch.randn(2, others, 64, device=device, dtype=dtype)
        return (q @ k.transpose(1, 2)) @ k

    def recurrence(length):
        return lstm(torch.randn(length // 16 + 1, length % 16 + 1, 32, device=device, dtype=dtype))

    def features(length):
        x = torch.randn(1, 32, length, device=device, dtype=dtype)
        return linear(convolution(x).transpose(1, 2))

    def resident():
        torch.loom.synchronize()
        torch.loom.empty_cache()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/smaps_rollup") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Rss")) / 1024

    lengths = [16 + index for index in range(2000)]
    random.Random(0).shuffle(lengths)
    sizes = []
    with torch.no_grad():
        for index, length in enumerate(lengths):
            if index % 500 == 0:
                sizes.append(resident())
            STEP(length)
        sizes.append(resident())
    print([round(size) for size in sizes])
    print(sizes[-1] - sizes[1])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", ["attention", "products", "recurrence", "features"])
def test_two_thousand_lengths(check, step: str) -> None:
    variables = {"LOOM_DEVICES": "1", "LOOM_THREADS": "2", "ONEDNN_MAX_CPU_ISA": "ALL"}
    done = check(PROGRAM.replace("STEP", step), **variables)
    assert float(done.out.split()[-1]) < 12, done.out


# After the others, threads have kernels for as many shapes as they may.
DIGEST = """
    import hashlib, sys, torch, torch_loom

    torch.manual_seed(0)
    values = torch.randn(2**20)

    def matrix(rows, columns, dtype, first):
        part = values[first : first + rows * columns].reshape(rows, columns)
        return part.to("loom", dtype)

    def product(index, dtype):
        rows, inner, columns = 1 + index % 97, 2 * (20 + index % 211), 1 + index % 301
        left = matrix(rows, inner, dtype, index)
        return left @ matrix(inner, columns, dtype, 7 * index)

    dtype = getattr(torch, sys.argv[1])
    if sys.argv[2] == "after others":
        for index in range(2000, 3500):
            product(index, dtype)
    digest = hashlib.sha256()
    for index in range(200):
        digest.update(product(index, dtype).float().cpu().numpy().tobytes())
    print(digest.hexdigest())
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("instructions", ["ALL", "AVX512_CORE_FP16"])
def test_results_do_not_depend_on_the_shapes_before(run, dtype: str, instructions: str) -> None:
    variables = {"LOOM_DEVICES": "1", "LOOM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": instructions}
    first = run(DIGEST, dtype, "first", **variables)
    after = run(DIGEST, dtype, "after others", **variables)
    assert (first.code, first.err) == (0, "")
    assert after.out == first.out
