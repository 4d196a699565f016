# SPDX-License-Identifier: BSD-3-Clause
"""Random calls of operators: families that draw them, ways to run them, and the verdict on loom."""
