# SPDX-License-Identifier: BSD-3-Clause
"""tools/merge_wheels.py, and how the package chooses among the folders that it makes."""

import base64
import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

from torch_loom import _variants

TOOL = Path(__file__).parents[2] / "tools" / "merge_wheels.py"
INFO = "torch_loom-0.1.0.dist-info"


def load_tool():
    spec = importlib.util.spec_from_file_location("merge_wheels", TOOL)
    module = sys.modules["merge_wheels"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


merge_wheels = load_tool()


def extension(python: str) -> str:
    return f"_C.cpython-{python[2:]}-x86_64-linux-gnu.so"


def make_wheel(folder: Path, torch: str, *pythons: str, **changed: bytes) -> Path:
    """A wheel as scikit-build-core makes it, with next to nothing inside."""
    pythons = pythons or ("cp311",)
    python = pythons[0]
    path = folder / torch / f"torch_loom-0.1.0-{python}-{python}-linux_x86_64.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    files = {
        "torch_loom/__init__.py": b"import os\n",
        **{f"torch_loom/{extension(each)}": f"{torch} {each}".encode() for each in pythons},
        "torch_loom/_built_for.py": f'# licence\nTORCH = "{torch}"\n'.encode(),
        "torch_loom/lib/libtorch_loom.so": torch.encode(),
        "torch_loom/lib/cmake/Loom/LoomConfig.cmake": torch.encode(),
        "torch_loom/include/loom/loom.h": b"// C++\n",
        f"{INFO}/METADATA": f"Metadata-Version: 2.1\nName: torch-loom\nVersion: 0.1.0\n"
        f"Requires-Dist: torch=={torch}.*\nRequires-Dist: torchao; extra == 'systems'\n".encode(),
        f"{INFO}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        f"Tag: {python}-{python}-linux_x86_64\n\n".encode(),
        f"{INFO}/entry_points.txt": b"[torch.backends]\ntorch_loom = torch_loom:_autoload\n",
        f"{INFO}/RECORD": b"",
    }
    files |= {"torch_loom/__init__.py": changed["init"]} if "init" in changed else {}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def merged(paths: list[Path], output: Path, monkeypatch, capsys) -> zipfile.ZipFile:
    monkeypatch.setattr(sys, "argv", ["merge", "--output", str(output), *map(str, paths)])
    merge_wheels.main()
    return zipfile.ZipFile(capsys.readouterr().out.strip())


def test_each_version_of_torch_has_a_folder(tmp_path, monkeypatch, capsys):
    wheels = [make_wheel(tmp_path, "2.14"), make_wheel(tmp_path, "2.13")]
    wheel = merged(wheels, tmp_path / "dist", monkeypatch, capsys)
    names = set(wheel.namelist())
    for folder, torch in (("_torch213", b"2.13"), ("_torch214", b"2.14")):
        assert wheel.read(f"torch_loom/{folder}/lib/libtorch_loom.so") == torch
        assert wheel.read(f"torch_loom/{folder}/{extension('cp311')}") == torch + b" cp311"
        assert f"torch_loom/{folder}/include/loom/loom.h" in names
        assert f"torch_loom/{folder}/_built_for.py" in names
    assert "torch_loom/__init__.py" in names
    assert not any(name.startswith(("torch_loom/lib/", "torch_loom/_C")) for name in names)
    assert Path(wheel.filename).name == "torch_loom-0.1.0-cp311-cp311-linux_x86_64.whl"


def test_metadata_asks_for_the_versions_inside(tmp_path, monkeypatch, capsys):
    wheels = [make_wheel(tmp_path, torch) for torch in ("2.13", "2.14", "2.16")]
    wheel = merged(wheels, tmp_path / "dist", monkeypatch, capsys)
    text = wheel.read(f"{INFO}/METADATA").decode()
    assert "Requires-Dist: torch>=2.13,!=2.15.*,<2.17\n" in text
    assert "Requires-Dist: torchao; extra == 'systems'\n" in text


@pytest.mark.parametrize("at_once", [True, False])
def test_pythons_share_a_library(tmp_path, monkeypatch, capsys, at_once):
    pythons = ("cp310", "cp311")
    built = [pythons] if at_once else [(python,) for python in pythons]
    wheels = [make_wheel(tmp_path, "2.13", *each) for each in built]
    wheel = merged(wheels, tmp_path / "dist", monkeypatch, capsys)
    inside = {f"torch_loom/_torch213/{extension(python)}" for python in pythons}
    assert inside <= set(wheel.namelist())
    assert wheel.filename.endswith("-cp310.cp311-cp310.cp311-linux_x86_64.whl")
    tags = wheel.read(f"{INFO}/WHEEL").decode()
    assert "Tag: cp310-cp310-linux_x86_64\nTag: cp311-cp311-linux_x86_64\n" in tags


def test_record_lists_each_file_with_its_hash(tmp_path, monkeypatch, capsys):
    wheel = merged([make_wheel(tmp_path, "2.13")], tmp_path / "dist", monkeypatch, capsys)
    lines = wheel.read(f"{INFO}/RECORD").decode().splitlines()
    assert {line.split(",")[0] for line in lines} == set(wheel.namelist())
    for line in lines:
        name, digest, length = line.split(",")
        if name.endswith("RECORD"):
            continue
        content = wheel.read(name)
        hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        assert (digest, int(length)) == (f"sha256={hashed}", len(content))


def test_modules_that_differ_are_refused(tmp_path, monkeypatch, capsys):
    wheels = [make_wheel(tmp_path, "2.13"), make_wheel(tmp_path, "2.14", init=b"import sys\n")]
    with pytest.raises(SystemExit, match=r"torch_loom/__init__\.py differs"):
        merged(wheels, tmp_path / "dist", monkeypatch, capsys)


def test_the_folder_of_the_installed_torch_is_chosen(tmp_path):
    (tmp_path / "_torch213").mkdir()
    (tmp_path / "_torch214").mkdir()
    path = [str(tmp_path)]
    for _ in range(2):  # an import that failed is tried again
        _variants.choose(path, "2.14.1+cpu")
    assert path == [str(tmp_path), str(tmp_path / "_torch214")]


def test_a_package_without_folders_stays_as_it_is(tmp_path):
    path = [str(tmp_path)]
    _variants.choose(path, "2.13.0")
    assert path == [str(tmp_path)]


def test_another_torch_is_refused_by_name(tmp_path):
    (tmp_path / "_torch213").mkdir()
    (tmp_path / "_torch210").mkdir()
    with pytest.raises(ImportError) as refused:
        _variants.choose([str(tmp_path)], "2.12.1")
    for part in ("2.10.*, 2.13.*", "got torch 2.12.1", "'torch==2.13.*'"):
        assert part in str(refused.value)
