# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of more than 2^31 elements, at the elements beyond: bytes, so that two of them fit into 5
GiB."""

import pytest
import torch

COUNT = 2**31 + 70
LAST, BEYOND = COUNT - 1, 2**31

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_elements_beyond_what_32_bits_count() -> None:
    x = torch.zeros(COUNT, dtype=torch.int8, device="loom")
    x[LAST], x[BEYOND] = 3, 5
    assert [x[i].item() for i in (LAST, BEYOND, BEYOND - 1)] == [3, 5, 0]

    y = x + 1
    assert [y[i].item() for i in (LAST, BEYOND, 7)] == [4, 6, 1]
    del y

    assert x.sum().item() == 8
    assert x.max().item() == 5
    rows = x[:BEYOND].view(2**16, 2**15)
    rows[-1, -1] = 7
    assert rows.sum(1)[-1].item() == 7

    places = torch.tensor([LAST, BEYOND], device="loom")
    assert x[places].tolist() == [3, 5]
    assert x.index_select(0, places).tolist() == [3, 5]
    assert x.gather(0, places).tolist() == [3, 5]
    x.scatter_(0, places, 9)
    assert x[places].tolist() == [9, 9]

    x.random_(3)
    assert set(x[-64:].tolist()) == {0, 1, 2}
