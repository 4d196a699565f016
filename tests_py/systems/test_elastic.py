# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training: torchrun starts ranks anew when one ends, and they train on as if none had."""

import pytest
from torchrun import torchrun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
    import hashlib
    import os
    import signal
    import sys

    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.elastic.multiprocessing.errors import record
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    HOW, KIND, STEPS, DEATH = {how!r}, {kind!r}, 12, 7
    FOLDER = "checkpoint"


    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(32, 4)
        ).to("loom")
        if KIND == "sharded":
            fully_shard(model)
        else:
            model = DistributedDataParallel(model)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)


    @record
    def main():
        local = int(os.environ["LOCAL_RANK"])
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        torch.accelerator.set_device_index(local)
        dist.init_process_group("lccl")  # for tensors of the cpu, too
        rank = dist.get_rank()
        model, optimizer = make()
        weights, moments = get_state_dict(model, optimizer)
        state = {{"model": weights, "optimizer": moments, "step": torch.tensor(0)}}
        if os.path.exists(f"{{FOLDER}}/.metadata"):
            dcp.load(state, checkpoint_id=FOLDER)
            set_state_dict(
                model,
                optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
            print("rank", rank, "goes on at step", int(state["step"]), flush=True)
        for step in range(int(state["step"]), STEPS):
            torch.manual_seed(1000 * step + rank)
            loss = model(torch.randn(8, 16, device="loom")).square().mean()
            if step == DEATH and attempt == 0 and rank == 1:
                if HOW == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if HOW == "raises":
                    raise RuntimeError("rank 1 has had enough")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 3 == 2:
                weights, moments = get_state_dict(model, optimizer)
                state = {{"model": weights, "optimizer": moments, "step": torch.tensor(step + 1)}}
                dcp.save(state, checkpoint_id=FOLDER)
        weights, _ = get_state_dict(model, optimizer)
        whole = [w.full_tensor() if hasattr(w, "full_tensor") else w for w in weights.values()]
        flat = torch.cat([w.cpu().flatten() for w in whole])
        digest = hashlib.sha1(flat.numpy().tobytes()).hexdigest()
        print("rank", rank, "attempt", attempt, "weights", digest, flush=True)
        dist.destroy_process_group()


    main()
"""


def final_weights(out):
    """By rank: the attempt that came to the end, and a digest of its weights."""
    lines = [line.split() for line in out.splitlines() if "weights" in line]
    return {int(line[1]): (int(line[3]), line[5]) for line in lines}


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
@pytest.mark.parametrize("how", ["killed", "raises"])
def test_goes_on_from_the_last_checkpoint(tmp_path, how, kind):
    ranks = 3
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    out = torchrun(undisturbed, SCRIPT.format(how="never", kind=kind), ranks)
    wanted = final_weights(out)
    assert {attempt for attempt, _ in wanted.values()} == {0}
    assert len({digest for _, digest in wanted.values()}) == 1
    out = torchrun(disturbed, SCRIPT.format(how=how, kind=kind), ranks, "--max-restarts=2")
    assert out.count("goes on at step 6") == ranks
    assert final_weights(out) == {rank: (1, digest) for rank, (_, digest) in wanted.items()}
