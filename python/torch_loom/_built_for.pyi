# SPDX-License-Identifier: BSD-3-Clause
# Written while the library is built.

TORCH: str
"""The minor version of torch that the library was built for, as "2.13"."""
