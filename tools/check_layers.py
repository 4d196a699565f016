# SPDX-License-Identifier: BSD-3-Clause
"""Check that includes go down the levels of the house: `check_layers.py [root]`.

A folder of cpp/loom may include itself and folders of lower levels, and so may a room of ops/.
Levels 0 to 2 see no torch,
only python/bindings sees Python, and the headers that include all of torch are used nowhere.
"""

import re
import sys
from pathlib import Path

LEVELS = {
    "base": 0,
    "simd": 1,
    "device": 1,
    "collectives": 2,
    "kernels": 2,
    "memory": 2,
    "fusion": 2,
    "backend": 3,
    "ops": 4,
    "profiler": 5,
    "graph": 5,
    "distributed": 5,
}
# The rooms of ops/, in the same way. What lies in ops/ itself is above them: its interface.
ROOMS = {"launch": 0, "meta": 1, "cuts": 2, "fallback": 3, "recipes": 4, "aten": 5}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"(ATen|c10|caffe2|torch)/(?!headeronly/)")
PYTHON = re.compile(r"Python\.h|pybind11/|torch/csrc/utils/pybind\.h|torch/csrc/python_headers\.h")
WHOLE_TORCH = {"ATen/ATen.h", "torch/all.h", "torch/extension.h", "torch/torch.h"}


def violation(folder: str | None, include: str, room: str | None = None) -> str | None:
    """Say what is wrong with an include in a folder, and room, of cpp/loom (None: above all)."""
    if include in WHOLE_TORCH:
        return "includes all of torch"
    if folder is None:
        return None
    if PYTHON.match(include):
        return "only python/bindings may see Python"
    if folder not in LEVELS:
        return "its folder has no level in tools/check_layers.py"
    level = LEVELS[folder]
    if level <= 2 and TORCH.match(include):
        return f"level {level} must not see torch"
    if match := re.match(r"loom/(\w+)/", include):
        other = LEVELS.get(match[1], 99)
        if match[1] != folder and other >= level:
            return f"level {level} must not include {match[1]}, which is not below it"
    if folder == "ops" and room is not None:
        if room not in ROOMS:
            return "its room of ops has no level in tools/check_layers.py"
        match = re.match(r"loom/ops/(?:(\w+)/)?", include)
        if match and match[1] != room and ROOMS.get(match[1] or "", 99) >= ROOMS[room]:
            return f"{room} must not include {match[1] or 'ops'}, which is not below it"
    return None


def check(root: Path) -> list[str]:
    """Return one line for each forbidden include below root."""
    found = []
    library = root / "cpp" / "loom"
    for base in (library, root / "python" / "bindings"):
        for file in sorted(base.rglob("*")):
            if file.suffix not in {".h", ".cpp"}:
                continue
            inside = base == library and file.parent != library  # loom.h is above all levels
            parts = file.relative_to(library).parts if inside else (None,)
            room = parts[1] if len(parts) > 2 else None
            for include in INCLUDE.findall(file.read_text()):
                if why := violation(parts[0], include, room):
                    found.append(f"{file.relative_to(root)}: {include}: {why}")
    return found


if __name__ == "__main__":
    violations = check(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(violations), end="\n" if violations else "")
    sys.exit(bool(violations))
