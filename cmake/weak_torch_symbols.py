# SPDX-License-Identifier: BSD-3-Clause
"""Lets a library be loaded in a process whose torch lacks functions that it was linked with.

In another minor version of torch than it was built for the library registers nothing and says why.
But the dynamic loader asks for all functions first, when it loads a module of Python, and would end
with the first name that is missing. So the names that the library takes from torch become weak:
what is missing is null there, and nobody calls it. Of the torch that it was built for nothing can
be missing, since only names that are found there are changed.

    python weak_torch_symbols.py LIBRARY TORCH_LIBRARY...
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_DYNSYM = 11
_SYMBOL = struct.Struct("<IBBHQQ")
_GLOBAL, _WEAK = 1, 2


def symbols(data: mmap.mmap | bytes) -> Iterator[tuple[int, bytes, int, bool]]:
    """Place, name, info byte and whether it is defined, of each dynamic symbol of a 64-bit file."""
    if data[:6] != b"\x7fELF\x02\x01":
        sys.exit("weak_torch_symbols.py: expected a 64-bit little-endian ELF file")
    (sections,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size) for i in range(count)]
    for header in headers:
        if header[1] != _DYNSYM:
            continue
        offset, length, strings = header[4], header[5], headers[header[6]][4]
        for place in range(offset + _SYMBOL.size, offset + length, _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(data, place)
            begin = strings + name
            yield place, data[begin : data.find(b"\0", begin)], info, section != 0


def read(path: str) -> mmap.mmap:
    """The content of a file."""
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def main() -> None:
    """Change the library in place."""
    library, *torch = sys.argv[1:]
    data = Path(library).read_bytes()
    wanted = {
        name: (place, info)
        for place, name, info, is_defined in symbols(data)
        if not is_defined and info >> 4 == _GLOBAL
    }
    found = {
        name
        for path in torch
        for _, name, _, is_defined in symbols(read(path))
        if is_defined and name in wanted
    }
    changed = bytearray(data)
    for name in found:
        place, info = wanted[name]
        changed[place + 4] = _WEAK << 4 | info & 0xF
    Path(library).write_bytes(changed)


if __name__ == "__main__":
    main()
