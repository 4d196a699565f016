# SPDX-License-Identifier: BSD-3-Clause
"""What the shared library asks of the dynamic loader."""

import pathlib
import struct
import sys

import pytest

import torch_loom  # noqa: F401

PT_TLS = 7
# A library that is loaded late shares with all others what the loader keeps for thread-local
# variables, some 1.5 KiB in glibc: who asks for too much cannot be loaded in some processes.
MOST_TLS_BYTES = 1024


def loaded_library():
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        if "libtorch_loom.so" in line:
            return pathlib.Path(line.split(maxsplit=5)[5])
    raise AssertionError("libtorch_loom.so is not among what is mapped")


def program_headers(data):
    """Type and size in memory of each header of a 64-bit ELF file."""
    assert data[:5] == b"\x7fELF\x02"
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind = struct.unpack_from("<I", data, offset + i * size)[0]
        yield kind, struct.unpack_from("<Q", data, offset + i * size + 40)[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads ELF files of /proc")
def test_thread_local_variables_are_few():
    headers = list(program_headers(loaded_library().read_bytes()))
    sizes = [size for kind, size in headers if kind == PT_TLS]
    assert len(sizes) == 1
    assert 0 < sizes[0] <= MOST_TLS_BYTES
