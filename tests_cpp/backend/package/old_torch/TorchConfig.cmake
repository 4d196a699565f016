# SPDX-License-Identifier: BSD-3-Clause
# A torch that is too old, as find_package(Torch) sees it.
set(Torch_FOUND TRUE)
