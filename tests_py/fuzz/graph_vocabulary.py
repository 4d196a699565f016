# SPDX-License-Identifier: BSD-3-Clause
"""What the steps of random functions are made of.

A step has names of tensors as {x}, {y} and {z}, dimensions of x as {d} and {e}, an index of whole
dimensions before d as {before}, small numbers as {n}, an index along d as {i} (along the first
dimension as {i0}), and permutations of those as {p} and {p0}.

Steps have one right result where their operands have and all of these are small integers, but for
those of ROUGH. Those with a DISCONTINUOUS word are given no others.
"""

POINTWISE = """
-{x} | abs({x}) | torch.relu({x}) | torch.square({x}) | torch.sign({x}) | {x}.logical_not()
{x} + {y} | {x} - {y} | {x} * {y} | torch.maximum({x}, {y}) | torch.minimum({x}, {y}) | {x} == {y}
{x} != {y} | {x} < {y} | {x} >= {y} | {x} > {n} | {x} + {n} | {n} - {x} | {x} * {n} | {x} // {n}
{x} % {n} | {x}.floor() | {x}.round() | {x}.clamp(-2, {n}) | {x}.clamp(min=0) | {x} & {y}
torch.bitwise_or({x}, {y}) | {x} ^ {y} | ~{x} | {x} << 1 | {x} >> 1 | {x}.fmod({n})
torch.where({x} > {n}, {x}, {y}) | torch.where({x} != 0, {y}, {z}) | torch.where({x} < 0, {n}, {x})
torch.addcmul({x}, {y}, {z}) | torch.add({x}, {y}, alpha={n}) | {x}.masked_fill({y} > 0, {n})
torch.isnan({x}) | torch.logical_and({x}, {y}) | torch.zeros_like({x}) + {y}
torch.full_like({x}, {n})
{x} + torch.arange({x}.shape[{d}], device={x}.device).view([-1] + [1] * ({x}.dim() - 1 - {d}))
"""

ROUGH = """
torch.tanh({x}) | torch.sigmoid({x}) | torch.sin({x}) | torch.cos({x}) | torch.erf({x})
torch.exp(-{x} * {x}) | torch.log1p({x} * {x}) | torch.sqrt({x} * {x} + 1) | {x} / ({y} * {y} + 1)
torch.rsqrt({x} * {x} + 0.5) | {x} / {n} | {x} * 0.37 + {y} | torch.lerp({x}, {y}, 0.3)
torch.nn.functional.gelu({x}) | torch.nn.functional.silu({x}) | torch.nn.functional.softplus({x})
torch.softmax({x}, {d}) | torch.log_softmax({x}, {d}) | torch.logsumexp({x}, {d}) | {x}.mean({d})
{x}.mean({d}, keepdim=True) | {x}.var({d}, unbiased=False) | {x}.mean()
{x} - {x}.mean(-1, keepdim=True) | torch.nn.functional.layer_norm({x}, {x}.shape[-1:])
torch.std({x}, {d}, correction=0) * 0 + {x}.sum({d}) | {x}.cumsum({d}) * 0.5
torch.expm1({x} * 0.1) | torch.atan2({x}, {y} * {y} + 1) | torch.var_mean({x}, {d}, correction=0)[1]
{x}.pow(3) * 0.1
"""

VIEWS = """
{x}.transpose({d}, {e}) | {x}[{before}1:] | {x}[{before}::2] | {x}[{before}-1] | {x}[{before}0]
{x}[{before}:-1] | {x}.unsqueeze({d}) | {x}.unsqueeze(-1) | {x}.expand(2, *{x}.shape)
{x}.reshape(-1) | {x}.flatten() | {x}.movedim({d}, {e}) | {x}.narrow({d}, 0, {x}.shape[{d}] // 2)
{x}.chunk(3, {d})[-1] | {x}.tensor_split(2, {d})[-1] | {x}.chunk(2, {d})[0] | {x}.diagonal()
{x}.squeeze() | {x}.squeeze({d}) | {x}.view(-1) | {x}.detach() | {x}.contiguous()
{x}.unfold({d}, 2, 1) | {x}.view({x}.shape[0], -1) | {x}.mT | {x}.reshape(*{x}.shape[:{d}], -1)
{x}[..., None] | {x}[None] | {x}.view_as({x})
{x}.as_strided({x}.shape, {x}.stride(), {x}.storage_offset()) | {x}.expand_as({y})
{x}.flatten({d})
"""

MOVES = """
{x}.clone() | {x}.flip({d}) | {x}.roll(1, {d}) | torch.cat([{x}, {x}], {d})
torch.cat([{x}, {y}], {d}) | torch.stack([{x}, {x} + 1], {d})
torch.cat([{x}[{before}1:], {x}[{before}:1]], {d}) | {x}.repeat(2, *[1] * ({x}.dim() - 1))
torch.nn.functional.pad({x}, (1, 2), value={n}) | torch.tril({x}) | {x}.repeat_interleave(2, {d})
torch.cat([p * 2 for p in {x}.chunk(3, {d})], {e}) | torch.stack([{x}, {y}]) | torch.diag_embed({x})
torch.broadcast_tensors({x}, {y})[0].contiguous() | {x}.t().contiguous().t()
torch.empty_like({x}).copy_({y})
"""

INDEXED = """
{x}[{before}{i}] | {x}.index_select({d}, {i})
torch.take_along_dim({x}, {x}.long() % {x}.shape[{d}], {d})
torch.gather({x}, {d}, ({x}.long() * 3) % {x}.shape[{d}]) | {x}[{p}]
torch.nn.functional.embedding({i}, {x})
{x}.scatter({d}, ({x}.long() * 0) + {p}.view([-1] + [1] * ({x}.dim() - 1 - {d})), {x} * 2)
{x}.scatter_add({d}, {x}.long() % {x}.shape[{d}], {x})
{x}.index_add({d}, {i}, {x}.index_select({d}, {i})) | {x}.index_put(({p0},), {x})
{x}.index_put(({i0},), {x}[:1], accumulate=True) | {x}.index_copy({d}, {p}, {x} + 1)
{x}.scatter_reduce({d}, {x}.long() % {x}.shape[{d}], {x}, 'amax') | {x}.index_fill({d}, {i}, {n})
{x}[{i0}, 0] | {x}.sort({d})[0] | {x}.topk(1, {d})[0]
torch.nn.functional.one_hot({i}, {x}.shape[{d}])
"""

REDUCTIONS = """
{x}.sum({d}) | {x}.sum({d}, keepdim=True) | {x}.sum() | {x}.amax({d}) | {x}.amin({d}, keepdim=True)
{x}.amax() | {x}.any({d}) | {x}.all() | {x}.argmax({d}) | {x}.argmin({d}) | {x}.argmax()
{x}.max({d})[0] | {x}.max({d})[1] | {x}.count_nonzero({d}) | {x}.cumsum({d}) | {x}.sum(({d}, {e}))
{x}.sum(0, dtype=torch.float64) | {x}.min(-1, keepdim=True)[0] | {x}.amax(({d}, {e}))
{x}.prod({d}) * 0 + 1 | ({x} * {y}).sum({d}) | ({x} > 0).sum({d})
{x} - {x}.amax({d}, keepdim=True) | {x}.aminmax(dim={d})[1] | {x}.cummax({d})[0]
"""

WRITES = """
{x}.add_({y}) | {x}.mul_({n}) | {x}.sub_({y}, alpha={n}) | {x}.copy_({y}) | {x}.zero_()
{x}.fill_({n}) | {x}.neg_() | {x}[{before}0] = {n} | {x}[{before}1:] += {n} | {x}[{before}::2] = {y}
{x}[...] = {y} | {x}.relu_() | {x}.transpose({d}, {e}).mul_(2) | {x}.masked_fill_({y} > 0, {n})
{x}.clamp_(-2, 3) | {x}.view(-1)[0] = {n} | {x}.index_fill_({d}, {i}, {n})
{x}.index_add_({d}, {i}, {x}.index_select({d}, {i})) | {x}[{before}-1].add_({y})
{x}.scatter_({d}, {x}.long() % {x}.shape[{d}], {n}) | {x}[{p0}] = {x} + 1 | {x}[{before}{i}] = {n}
{x}.unsqueeze(0).add_(1) | {x}.detach().add_({n}) | {x}.diagonal().fill_({n}) | {x}[{x} > 2] = {n}
torch.add({y}, {z}, out={x}) | {x}.logical_not_() | {x}.addcmul_({y}, {z}) | {x}.bitwise_xor_({y})
{x}.flip({d}).add_(1) | {x}[{before}1:].copy_({x}[{before}:-1] + 1)
"""

PRODUCTS = """
{x} @ {x}.mT | {x}.mT @ {x} | torch.mm({x}, {y}) | {x} @ {y} | {x} @ {y}.mT
torch.nn.functional.linear({x}, {y}) | torch.addmm({z}, {x}, {y}) | torch.bmm({x}, {x}.mT)
torch.mv({x}, {y}) | torch.einsum('...i,...i->...', {x}, {y}) | torch.outer({x}, {y})
torch.baddbmm({z}, {x}, {x}.mT)
"""


# A small difference of an operand may make a large one of the result, or of its gradient.
DISCONTINUOUS = """
> < == != // % & ^ ~ abs relu sign logical max min floor round clamp bitwise fmod isnan any all long
arg count sort topk prod amax amin
""".split()


def codes(table: str) -> list[str]:
    """The codes of a table."""
    return [code for line in table.strip().splitlines() for code in line.split(" | ")]
