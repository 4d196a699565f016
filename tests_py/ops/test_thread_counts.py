# SPDX-License-Identifier: BSD-3-Clause
"""What is cut into blocks gives the same bits on one core, on two, and where more threads than
processors share the work.
"""

from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

PROGRAM = """
import hashlib, sys, warnings
import torch, torch_loom
sys.path.insert(0, FOLDER)
import test_image_splits, test_splits

def parts(value):
    if isinstance(value, torch.Tensor):
        host = value.detach().cpu().contiguous()
        yield (torch.view_as_real(host) if host.is_complex() else host).numpy().tobytes()
    else:
        for each in value:
            yield from parts(each)

def digest(value):
    found = hashlib.sha256()
    for part in parts(value):
        found.update(part)
    return found.hexdigest()

warnings.simplefilter("ignore")
CASES = test_splits.CASES | test_image_splits.CASES
GRADIENTS = {*test_splits.GRADIENTS, *test_image_splits.GRADIENTS}
for name, (function, inputs) in CASES.items():
    own = [each.to("loom", copy=True) for each in inputs]
    if name in GRADIENTS:
        wanted = [each.requires_grad_() for each in own if each.is_floating_point()]
        made = function(*own)
        (made if isinstance(made, torch.Tensor) else made[0]).abs().sum().backward()
        grads = [each.grad for each in wanted if each.grad is not None]
        print(name, "gradient", digest(grads))
        for each in wanted:
            each.requires_grad_(False)
    function(*own)  # the first one of its kind may run on the host
    print(name, digest(function(*own)))
"""


def test_results_do_not_depend_on_the_number_of_threads(check) -> None:
    program = PROGRAM.replace("FOLDER", repr(str(Path(__file__).parent)))
    one, two, eight = (
        check(program, LOOM_THREADS=threads).out.splitlines() for threads in ("1", "2", "8")
    )
    assert len(one) > 50
    assert [line for line in two if line not in one] == []
    assert [line for line in eight if line not in one] == []
