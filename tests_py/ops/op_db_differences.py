# SPDX-License-Identifier: BSD-3-Clause
"""Where loom and cpu are allowed to differ over op_db, each with its reason."""

# Operators that do not agree. An entry that agrees after all fails the test until it is removed.
DIFFERENCES: dict[str, str] = {}

_RANDOM = "random numbers differ by design: loom draws from its own Philox generator"
_UNINITIALISED = "the memory is uninitialised"

# Operators that take host tensors beside the device tensor on every accelerator.
HOST_ARGUMENTS: dict[str, str] = {"tensor_split": "indices are read by the host"}

# Operators whose values mean nothing to compare: shapes, strides, dtypes and devices are.
NOT_COMPARED: dict[str, str] = {
    **dict.fromkeys(
        (
            "bernoulli",
            "cauchy",
            "exponential",
            "geometric",
            "log_normal",
            "multinomial",
            "nn.functional.alpha_dropout",
            "nn.functional.dropout",
            "nn.functional.dropout2d",
            "nn.functional.dropout3d",
            "nn.functional.feature_alpha_dropout",
            "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d",
            "nn.functional.multi_head_attention_forward",
            "nn.functional.rrelu",
            "pca_lowrank",
            "svd_lowrank",
            "normal",
            "rand_like",
            "randint",
            "randint_like",
            "randn",
            "randn_like",
            "uniform",
        ),
        _RANDOM,
    ),
    **dict.fromkeys(
        (
            "empty",
            "empty_like",
            "empty_permuted",
            "empty_strided",
            "new_empty",
            "new_empty_strided",
        ),
        _UNINITIALISED,
    ),
}
