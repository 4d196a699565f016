# SPDX-License-Identifier: BSD-3-Clause
"""What test folders share."""
