# SPDX-License-Identifier: BSD-3-Clause
message(FATAL_ERROR "torch's own configuration was asked")
