# SPDX-License-Identifier: BSD-3-Clause
"""Host tensors among loom's: nothing is written to one, not even to a number, with CUDA's words."""

import pytest
import torch

OUT = {
    "add": lambda x, i, o: torch.add(x, x, out=o),
    "exp": lambda x, i, o: torch.exp(x, out=o),
    "sum": lambda x, i, o: torch.sum(x, 0, out=o),
    "nansum": lambda x, i, o: torch.nansum(x, 0, out=o),
    "cumsum": lambda x, i, o: torch.cumsum(x, 0, out=o),
    "addr": lambda x, i, o: torch.addr(x[:, None] * x, x, x, out=o),
    "angle": lambda x, i, o: torch.angle(x, out=o),
    "bernoulli": lambda x, i, o: torch.bernoulli(x, out=o),
    "normal": lambda x, i, o: torch.normal(x, x, out=o),
    "normal by a number": lambda x, i, o: torch.normal(x, 1.0, out=o),
    "normal around a number": lambda x, i, o: torch.normal(1.0, x, out=o),
    "multinomial": lambda x, i, o: torch.multinomial(x, 2, out=o.long()),
    "nonzero": lambda x, i, o: torch.nonzero(x, out=o.long()),
    "take": lambda x, i, o: torch.take(x, i, out=o),
    "masked_select": lambda x, i, o: torch.masked_select(x, x > 0, out=o),
    "index_select": lambda x, i, o: torch.index_select(x, 0, i, out=o),
    "gather": lambda x, i, o: torch.gather(x, 0, i, out=o),
    "index": lambda x, i, o: torch.ops.aten.index.Tensor_out(x, [i], out=o),
    "kthvalue": lambda x, i, o: torch.kthvalue(x, 1, out=(o, i[0])),
    "kthvalue's place": lambda x, i, o: torch.kthvalue(x, 1, out=(x[0], o.long())),
    "mode": lambda x, i, o: torch.mode(x, 0, out=(o, i[0])),
    "histc": lambda x, i, o: torch.histc(x, 4, out=o),
    "nan_to_num": lambda x, i, o: torch.nan_to_num(x, out=o),
    "polar": lambda x, i, o: torch.polar(x, x, out=o.to(torch.complex64)),
    "cholesky_inverse": lambda x, i, o: torch.cholesky_inverse(x.diag(), out=o),
    "mm": lambda x, i, o: torch.mm(x[:, None], x[None], out=o),
    "cat": lambda x, i, o: torch.cat([x, x], out=o),
}

REFUSED = "Expected all tensors to be on the same device|Expected out tensor to have device loom"


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("shape", [(), (4,), (4, 4)], ids=str)
def test_a_host_tensor_is_no_result(name, shape):
    x = torch.full((4,), 0.5, device="loom")
    i = torch.zeros(4, dtype=torch.int64, device="loom")
    out = torch.full(shape, 7.0)
    with pytest.raises(RuntimeError, match=REFUSED + "|arguments must have the same device"):
        OUT[name](x, i, out)
    torch.loom.synchronize()
    assert out.eq(7).all()


IN_PLACE = {
    "add_": lambda y, x, i: y.add_(x),
    "addcmul_": lambda y, x, i: y.addcmul_(x, x),
    "put_": lambda y, x, i: y.put_(i, x),
    "index_fill_": lambda y, x, i: y.index_fill_(0, i, 1),
    "index_add_": lambda y, x, i: y.index_add_(0, i, x),
    "scatter_": lambda y, x, i: y.scatter_(0, i, x),
    "masked_fill_": lambda y, x, i: y.masked_fill_(x > 0, 1),
    "masked_scatter_": lambda y, x, i: y.masked_scatter_(x > 0, x),
    "lerp_": lambda y, x, i: y.lerp_(x, 0.5),
    "polygamma": lambda y, x, i: torch.special.polygamma(1, x, out=y),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_a_host_tensor_is_not_changed_by_device_tensors(name, shape):
    y = torch.full(shape, 7.0)
    x = torch.full((1,), 0.5, device="loom")
    with pytest.raises(
        RuntimeError, match=r"to be on the same device|to have device|output with shape"
    ):
        IN_PLACE[name](y, x, torch.zeros(1, dtype=torch.int64, device="loom"))
    torch.loom.synchronize()
    assert y.eq(7).all()


def test_host_values_are_not_put_unless_they_are_a_number():
    x = torch.zeros(4, device="loom")
    i = torch.tensor([1, 2], device="loom")
    with pytest.raises(RuntimeError, match="found at least two devices, loom:0 and cpu!"):
        x.index_put_((i,), torch.ones(2))
    with pytest.raises(
        RuntimeError, match="expected device loom:0 but got device cpu for value tensor"
    ):
        x.index_put_((i,), torch.ones(2), accumulate=True)
    x[i] = torch.tensor(2.0)
    x.index_put_((torch.tensor([3]),), torch.ones(1, device="loom"))
    assert x.tolist() == [0, 2, 2, 1]
