# SPDX-License-Identifier: BSD-3-Clause
"""What stress programs have beside the steps of stream programs: what fails, and what disturbs.

Codes are as in stream_vocabulary.py. `bad` has indices of which one is out of range, which cpu's
are not; `spoil()` makes its argument on cpu what nobody may see.
The other functions are those of stress_programs.py.
"""

# Each makes a tensor whose command fails.
FAILURES = """
spoil({x}.index_select({d}, bad)) | spoil({x}[{before}bad]) | spoil(torch.take({x}, bad))
spoil(torch.nn.functional.embedding(bad, {x}.float())) | spoil(torch.index_select({x} * 2, 0, bad))
"""
# Each writes {x}, and its command fails.
FAILURE_WRITES = """
spoil({x}.index_fill_({d}, bad, {n})) | spoil(torch.index_select({y}, {d}, bad, out={x}))
spoil({x}.index_copy_({d}, bad, {x}.index_select({d}, bad * 0))) | {x}.copy_(spoil({y}[bad])[:1])
"""
# Each writes all of {x}: what was wrong with it is over.
HEALING = """
{x}.zero_() | {x}.fill_({n}) | {x}.copy_({y}) | {x}.copy_({x}.new_ones(1)) | {x}[...] = {n}
torch.add({y}, {z}, out={x}) | {x}.copy_(torch.full({x}.shape, {n}, device=device))
torch.mul({y}, {n}, out={x})
"""

# From one device to the other: to new memory, and to {x}. {q} is a tensor of the other one.
SENT = """
{x}.to(other, copy=True) | {x}.to(other, copy=True, non_blocking=True)
torch.empty({x}.shape, dtype={x}.dtype, device=other).copy_({x})
"""
FETCHED = """
{q}.to(device, copy=True) | torch.empty({q}.shape, dtype={q}.dtype, device=device).copy_({q})
"""
FETCHED_WRITES = """
{x}.copy_({q}) | {x}.copy_({q}, non_blocking=True) | {x}[{before}1:].copy_({q})
"""

# Each makes a tensor, of the operands of all ranks, and has one right result where they have.
COLLECTIVES = """
broadcast({x}, 0) | broadcast({x}, -1) | all_gather({x}) | exchange({x})
"""
# The same, but for sums. A maximum of zeros may have either sign.
SUMS = """
all_reduce({x}.float()) | all_reduce({x}.double()) | all_reduce({x}.bfloat16())
all_reduce({x}.long()) | all_reduce({x}.float() + 0.0, 'MAX') | reduce_scatter({x}.float())
"""

# Each makes a tensor, and lets go of much more memory than that.
PRESSURE = """
press(1) | press(3) | press(9) | press(24)
"""
# The host does each of these.
DISTURBANCES = """
torch.loom.empty_cache() | too_much() | too_much() | brim() | note() | note()
end_group() | s[{k}].query() | torch.loom.memory_stats() | torch.loom.current_stream().query()
"""
FORKS = """
fork(lambda: {x} + 1) | fork(lambda: {x}.cpu()) | fork(lambda: torch.empty(3, device=device))
fork(torch.loom.synchronize) | fork(torch.loom.Stream) | fork(torch.loom.empty_cache)
fork(lambda: torch.ones(3).pin_memory()) | fork(lambda: {x}.copy_(torch.ones(())))
"""

# What is counted, by the parts of codes that tell.
EVENTS = {
    "failing commands": ["spoil("],
    "copies without a wait": ["non_blocking"],
    "collectives": ["broadcast(", "all_gather(", "exchange(", "all_reduce(", "reduce_scatter("],
    "groups that end": ["end_group("],
    "large allocations": ["press("],
    "refused allocations": ["too_much(", "brim("],
    "calls of empty_cache": ["empty_cache()"],
    "forks": ["fork("],
    "timed events": ["note("],
    "deletions": ["del "],
    "looks": ["see("],
}
