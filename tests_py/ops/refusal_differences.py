# SPDX-License-Identifier: BSD-3-Clause
"""Where loom refuses a call otherwise than cpu, or does what cpu refuses, each with its reason."""

from refusals import Finding

_POWSUM = "a composite of powers and sums, which takes more dtypes and exponents than cpu's kernel"

# By name of the operator or family, and what the call's name has in it. An entry that refuses as
# cpu after all fails the test until it is removed.
DIFFERENCES: dict[tuple[str, str], str] = {
    ("shapes", "lstm"): "the layer looks at the number of parameters before it pairs them",
    ("dtypes", "max_pool1d"): "it is max_pool2d, which takes integers and has another name",
    ("numbers", "lerp 1e+300"): "the fused formula computes with the weight as it is",
    ("numbers", "lerp -1e+300"): "the fused formula computes with the weight as it is",
    ("numbers", "lerp_ 1e+300"): "the fused formula computes with the weight as it is",
    ("numbers", "lerp_ -1e+300"): "the fused formula computes with the weight as it is",
    ("foreach", "_foreach_powsum"): _POWSUM,
    ("foreach", "_foreach_abs of truth values"): "it is abs, which takes them on CUDA",
    ("foreach", "_foreach_abs_ of truth values"): "it is abs, which takes them on CUDA",
    ("foreach", "_foreach_max of complex"): "it is amax, whose kernel has another name",
    ("small dtypes", "eye of"): "it is a fill, whose kernel has another name",
    ("small dtypes", "equal of"): "it is eq and all, whose kernel has another name",
    ("small dtypes", "max of"): "it is amax, whose kernel has another name",
    ("narrow_copy", "error input 1"): "it is narrow, which says what is wrong in other words",
    ("narrow_copy", "error input 6"): "it is narrow, which says what is wrong in other words",
}


def reason_of(name: str, finding: Finding) -> str | None:
    for (operator, part), reason in DIFFERENCES.items():
        if name == operator and part in finding.name:
            return reason
    return None
