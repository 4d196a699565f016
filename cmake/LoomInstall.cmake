# SPDX-License-Identifier: BSD-3-Clause
# What a wheel carries (component python) and what a C++ program links (component dev).
include_guard(GLOBAL)
