# SPDX-License-Identifier: BSD-3-Clause
"""The tests of PyTorch's suite that do not pass with lccl, each with its reason."""

_MONITORED = (
    "PyTorch: monitored_barrier() takes a group whose backend is Gloo and no other, by its name"
)
_GLOO_TEXT = "the text of an error of Gloo's: lccl says which rank it has waited for"
_NCCL_NAME = "looks for NCCL's names of calls in a profile"
_NCCL_TEXT = "the text of an error of NCCL's watchdog: lccl says which operation has not ended"

KNOWN: dict[str, str] = {
    "test_DistributedDataParallel": (
        "PyTorch: a model of a static graph that is saved and loaded in the middle of a training "
        "does not reduce its gradients; cpu with Gloo gives the same numbers"
    ),
    "test_SyncBatchNorm_process_group": "needs torchvision",
    "test_barrier_timeout_arg": _GLOO_TEXT,
    "test_ddp_has_finalized": (
        "some ranks wait for one that will not come, and end by the timeout: PyTorch's machines "
        "do not look how, lccl raises"
    ),
    "test_ddp_hook_pickling_powerSGD": (
        "PyTorch: torch.load() refuses functions, for which the test does not ask"
    ),
    "test_ddp_logging_data_cpu": "PyTorch: every backend of others is `custom` in DDP's log",
    "test_ddp_profiling_execution_trace": _NCCL_NAME,
    "test_ddp_profiling_torch_profiler": _NCCL_NAME,
    "test_ddp_sync_bn_training_vs_eval": _NCCL_NAME,
    "test_monitored_barrier_allreduce_hang": _NCCL_TEXT,
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": _NCCL_TEXT,
    "test_monitored_barrier_failure_order": _MONITORED,
    "test_monitored_barrier_gloo": _MONITORED,
    "test_monitored_barrier_gloo_rank_0_timeout": _MONITORED,
    "test_monitored_barrier_gloo_subgroup": _MONITORED,
    "test_monitored_barrier_wait_all_ranks": _MONITORED,
    "test_nccl_high_priority_stream": "makes a ProcessGroupNCCL",
}
