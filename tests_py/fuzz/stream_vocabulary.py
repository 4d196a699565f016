# SPDX-License-Identifier: BSD-3-Clause
"""What the steps of random stream programs are made of, beside what those of graphs are.

Codes are as in graph_vocabulary.py. {h} and {k} are tensors on the host, {s} is a shape, {t} a
dtype, `g` a generator of the device.
"""

# Each makes a tensor, whose numbers are rounded.
NETWORKS = """
torch.softmax({x}.float(), {d}) | torch.nn.functional.layer_norm({x}.float(), {x}.shape[-1:])
torch.nn.functional.conv1d({x}.reshape(1, 1, -1).float(), {y}.reshape(-1)[:3].float()[None, None])
torch.nn.functional.conv2d({x}[None, None].float(), torch.ones(4, 1, 3, 3, device=device))
torch.nn.functional.conv2d({x}[None].float(), {x}[None, :, :1, :1].expand(5, -1, -1, -1).float())
torch.nn.functional.max_pool1d({x}.reshape(1, 1, -1).float(), 2)
torch.nn.functional.rms_norm({x}.float(), {x}.shape[-1:]) | {x}.float() @ {x}.float().mT
{x}.flatten(1).float() @ {y}.flatten(1).float().t() | {x}.bfloat16() @ {x}.bfloat16().mT
torch.nn.functional.linear({x}.float(), {y}.float()).relu() | {x}.float().cumsum({d}).tanh()
torch.nn.functional.scaled_dot_product_attention(*[{x}.float()[None]] * 3)
torch.nn.functional.batch_norm({x}.float(), None, None, training=True)
torch.nn.functional.group_norm({x}.float(), 1) | torch.linalg.vector_norm({x}.float(), dim={d})
"""

# Each makes a tensor, of numbers that cpu has not.
RANDOM = """
torch.rand({x}.shape, device=device, generator=g) | torch.randn({s}, device=device, generator=g)
torch.randint(0, 9, {x}.shape, device=device, generator=g)
torch.empty_like({x}).random_(3, generator=g)
torch.bernoulli(torch.full({s}, 0.5, device=device), generator=g)
torch.randperm({x}.shape[{d}], device=device, generator=g)
torch.multinomial({x}.reshape(1, -1).float().abs() + 1, 1, generator=g)
"""
RANDOM_WRITES = """
{x}.uniform_(-1, 1, generator=g) | {x}.normal_(generator=g) | {x}.random_(0, 5, generator=g)
{x}[{before}1:].normal_(generator=g) | {x}.bernoulli_(0.5, generator=g)
"""

# Each writes {x}, and {y} where there is one.
FOREACH_WRITES = """
torch._foreach_add_([{x}, {y}], {n}) | torch._foreach_mul_([{x}, {y}], [{n}, 1])
torch._foreach_add_([{x}, {y}], [{z}, {z}]) | torch._foreach_zero_([{x}, {y}])
torch._foreach_neg_([{x}, {y}]) | torch._foreach_copy_([{x}, {y}], [{z}, {z}])
torch._foreach_sub_([{x}, {y}], [{z}, {z}], alpha={n}) | torch._foreach_maximum_([{x}, {y}], {n})
"""
FOREACH = """
torch._foreach_add([{x}, {y}], {n})[1] | torch._foreach_mul([{x}, {y}], [{y}, {x}])[0]
torch._foreach_sub([{x}, {y}], [{y}, {z}])[1] | torch._foreach_neg([{x}, {y}])[0]
torch._foreach_abs([{x}, {x}.clone()])[1] | torch._foreach_maximum([{x}, {y}], {n})[1]
"""

# Into memory that is there, and into an empty tensor.
OUT = """
torch.add({y}, {z}, out={x}) | torch.mul({y}, {n}, out={x}) | torch.maximum({y}, {z}, out={x})
torch.where({y} > 0, {y}, {z}, out={x}) | torch.neg({y}, out={x}) | torch.cumsum({y}, {d}, out={x})
torch.index_select({y}, 0, torch.zeros(1, dtype=torch.long, device=device), out={x})
torch.sum({y}, {d}, out={x}) | torch.mm({y}, {z}, out={x}) | torch.cat([{y}, {z}], {d}, out={x})
"""
NEW_OUT = """
torch.add({x}, {y}, out=torch.empty(0, dtype={x}.dtype, device=device))
torch.neg({x}, out=torch.empty(0, dtype={x}.dtype, device=device))
torch.cat([{x}, {x}], {d}, out=torch.empty(0, dtype={x}.dtype, device=device))
torch.sort({x}, {d}, out=({x}.new_empty(0), {x}.new_empty(0, dtype=torch.long)))[0]
torch.mm({x}, {y}, out=torch.empty(0, dtype={x}.dtype, device=device))
"""

# Each lets {x} be other memory.
REPLACED = """
{x}.data = {y} | {x}.data = {x} * 2 | {x}.data = {y}.clone() | {x}.set_({y})
{x}.set_({x}.clone())
{x}.set_({y}.to({x}.dtype, copy=True).untyped_storage(), 0, ({y}.numel(),), (1,))
{x}.data = {x}[{before}1:]
"""

# The host waits for each of these.
LOOKS = """
see({x}) | see({x}.cpu()) | see({x}.reshape(-1)[-1].item()) | see({x}.tolist())
see({x}.sum().item()) | see(bool(({x} > 0).any())) | see({x}.nonzero()) | see({x}[{x} > 0])
see({x}.to('cpu', torch.float64)) | see(torch.unique({x})) | see(int({x}.argmax()))
"""

# Copies to new memory of the host; what is not in WAITED_COPIES is there later.
WAITED_COPIES = """
{x}.to('cpu', copy=True) | torch.empty({x}.shape, dtype={x}.dtype).copy_({x})
torch.empty({x}.shape, dtype={x}.dtype, pin_memory=True).copy_({x}) | {x}.cpu().clone()
"""
COPIES = """
{x}.to('cpu', non_blocking=True, copy=True)
torch.empty({x}.shape, dtype={x}.dtype, pin_memory=True).copy_({x}, non_blocking=True)
torch.empty({x}.shape, dtype={x}.dtype).copy_({x}, non_blocking=True)
torch.empty_like({x}, device='cpu', pin_memory=True).copy_({x}, non_blocking=True)
"""
HOST = """
{h}.clone() | torch.empty({h}.shape, dtype={h}.dtype, pin_memory=True).copy_({h}) | {h} + 1
torch.arange(7.0) | torch.ones(3, 5, pin_memory=True)
{h}.t() | {h}[1:] | torch.zeros({h}.shape, dtype={h}.dtype, pin_memory=True)
"""
HOST_WRITES = """
{h}.add_({n}) | {h}.fill_({n}) | {h}[...] = 3 | {h}.neg_()
"""
# From the host to the device: to new memory, and to {x}.
UPLOADS = """
{h}.to(device, non_blocking=True, copy=True) | {h}.to(device, copy=True)
{h}.to(device, torch.float64, copy=True)
{h}.pin_memory().to(device, non_blocking=True, copy=True)
torch.empty_like({h}, device=device).copy_({h})
torch.empty({h}.shape, dtype={h}.dtype, device=device).copy_({h}, non_blocking=True)
torch.tensor([1, 2, 3], device=device) | torch.arange(5, device=device)
"""
UPLOAD_WRITES = """
{x}.copy_({h}, non_blocking=True) | {x}.copy_({h}) | {x}[{before}1:].copy_({h}, non_blocking=True)
"""
DOWNLOAD_WRITES = """
{h}.copy_({x}, non_blocking=True)
"""
