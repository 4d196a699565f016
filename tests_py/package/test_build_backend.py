# SPDX-License-Identifier: BSD-3-Clause
"""pip builds loom for the torch that is installed, and says which one that is."""

import os
import re
import sys
import tarfile
from email import message_from_string
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

pytest.importorskip("scikit_build_core")

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
import build_backend  # noqa: E402
from build_backend import metadata, torch_location  # noqa: E402

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SUPPORTED = torch_location.Supported.read(ROOT / "pyproject.toml")


def make_torch(packages: Path, version: str) -> Path:
    """A folder that looks like a package torch."""
    folder = packages / "torch"
    (folder / "share/cmake/Torch").mkdir(parents=True)
    (folder / "share/cmake/Torch/TorchConfig.cmake").touch()
    (folder / "version.py").write_text(
        f"from typing import Optional\n\n__version__ = '{version}'\n"
    )
    return folder


@pytest.fixture(autouse=True)
def no_setting(monkeypatch):
    # The backend sets it for its own process: what it was is restored after each test.
    monkeypatch.setenv(torch_location.SETTING, "")


@pytest.fixture
def no_environment(monkeypatch):
    monkeypatch.setattr(torch_location, "_imported", lambda: iter(()))
    monkeypatch.setattr(torch_location, "_of_interpreter", lambda: iter(()))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)


@pytest.fixture
def no_torch(no_environment, monkeypatch):
    monkeypatch.setattr(torch_location, "_of_project", lambda: Path("nowhere"))


@pytest.fixture
def in_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def read_metadata(folder: Path):
    return message_from_string((folder / "METADATA").read_text())


def test_the_torch_that_python_imports_is_found():
    found = torch_location.find_torch({})
    assert found.folder == Path(torch.__path__[0])
    assert found.version == torch.__version__


def test_the_torch_that_an_isolated_build_hides_is_found(check):
    # pip removes the folder of packages from the path of the same interpreter.
    out = check(
        f"""
        import sys, sysconfig
        hidden = {{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}}
        sys.path = [path for path in sys.path if path not in hidden]
        sys.path.append({str(ROOT / "tools/build_backend")!r})
        import torch_location
        assert not list(torch_location._imported())
        torch_location._site_packages = None  # environment variables are not asked
        print(torch_location.find_torch().folder)
        """,
        PYTHONPATH=None,
    ).out
    assert Path(out.strip()) == Path(torch.__path__[0])


@pytest.mark.parametrize("shared", [True, False])
def test_packages_of_the_system_count_where_the_environment_shares_them(
    shared, tmp_path, monkeypatch
):
    (tmp_path / "pyvenv.cfg").write_text(f"home = /x\ninclude-system-site-packages = {shared}\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "system"))
    places = list(torch_location._of_interpreter())
    assert any(place.is_relative_to(tmp_path / "system") for place in places) == shared


@pytest.mark.usefixtures("no_torch")
@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_is_looked_in(variable, tmp_path):
    folder = make_torch(tmp_path / "lib" / PYTHON / "site-packages", "2.13.1+cu130")
    found = torch_location.find_torch({variable: str(tmp_path)})
    assert found == torch_location.Torch(folder, "2.13.1+cu130", variable)
    assert found.minor == "2.13"


@pytest.mark.usefixtures("no_environment")
def test_the_environment_of_the_project_is_looked_in(tmp_path, monkeypatch):
    folder = make_torch(tmp_path / ".venv/lib" / PYTHON / "site-packages", "2.14.0")
    monkeypatch.chdir(tmp_path)
    assert torch_location.find_torch({}).folder == folder


@pytest.mark.parametrize("named", ["package", "packages", "environment"])
def test_a_setting_comes_first(named, tmp_path):
    packages = tmp_path / "lib" / PYTHON / "site-packages"
    folder = make_torch(packages, "2.13.9")
    setting = {"package": folder, "packages": packages, "environment": tmp_path}[named]
    found = torch_location.find_torch({torch_location.SETTING: str(setting)})
    assert found.folder == folder
    assert str(setting) in found.source


def test_a_setting_without_torch_is_an_error(tmp_path):
    with pytest.raises(torch_location.TorchError, match=re.escape(f"torch={tmp_path}: expected")):
        torch_location.find_torch({torch_location.SETTING: str(tmp_path)})


def test_a_torch_without_headers_is_passed_over(tmp_path):
    folder = make_torch(tmp_path, "2.13.0")
    (folder / "share/cmake/Torch/TorchConfig.cmake").unlink()
    assert torch_location.torch_in(folder, "test") is None


@pytest.mark.usefixtures("in_project", "no_torch")
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_torch_is_a_build_requirement_only_where_there_is_none(kind, tmp_path):
    requires = getattr(build_backend, f"get_requires_for_build_{kind}")
    assert SUPPORTED.requirement() in requires()
    folder = make_torch(tmp_path, f"{SUPPORTED.oldest}.0")
    assert not [name for name in requires({"torch": str(folder)}) if name.startswith("torch")]
    assert not [name for name in build_backend.get_requires_for_build_sdist() if "torch" in name]


@pytest.mark.usefixtures("in_project")
@pytest.mark.parametrize(
    "hook", ["get_requires_for_build_wheel", "prepare_metadata_for_build_wheel"]
)
def test_an_older_torch_is_refused_by_name(hook, tmp_path):
    settings = {"torch": str(make_torch(tmp_path, "2.1.2"))}
    arguments = [str(tmp_path)] if hook.startswith("prepare") else []
    with pytest.raises(SystemExit, match=r"expected torch 2\.13 to .*, found 2\.1\.2 in "):
        getattr(build_backend, hook)(*arguments, settings)


def test_a_newer_torch_is_taken_with_a_warning(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv(torch_location.SETTING, str(make_torch(tmp_path, "2.99.0")))
    assert SUPPORTED.find().version == "2.99.0"
    assert "torch 2.99.0 is newer than" in capfd.readouterr().err


@pytest.mark.usefixtures("in_project", "no_torch")
def test_without_torch_the_build_says_what_to_install(tmp_path):
    with pytest.raises(SystemExit, match=r"found no torch.*pip install 'torch>=2"):
        build_backend.prepare_metadata_for_build_wheel(str(tmp_path))


@pytest.mark.usefixtures("in_project")
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_metadata_is_made_without_compiling(kind, tmp_path, capfd):
    folder = make_torch(tmp_path, f"{SUPPORTED.newest}.5+cpu")
    tree = tmp_path / "tree"
    prepare = getattr(build_backend, f"prepare_metadata_for_build_{kind}")
    name = prepare(str(tmp_path), {"torch": [str(folder)], "build-dir": str(tree)})
    assert not tree.exists()
    said = capfd.readouterr().out
    assert f"Building for torch {SUPPORTED.newest}.5+cpu in {folder}: the setting torch=" in said
    made = read_metadata(tmp_path / name)
    required = [text for text in made.get_all("Requires-Dist") if "extra ==" not in text]
    assert required == [f"torch=={SUPPORTED.newest}.*"]
    assert {text.split(",")[0] for text in made.get_all("Project-URL")} >= {"Source", "Issues"}
    for licence in made.get_all("License-File"):
        assert (tmp_path / name / "licenses" / licence).exists()
    entries = (tmp_path / name / "entry_points.txt").read_text()
    assert "torch_loom = torch_loom:_autoload" in entries.replace("=torch", "= torch")


def test_links_of_the_readme_are_absolute_in_the_metadata():
    text = "[a](docs/a.md#b), [c](https://c.d/e), [f](#f), ![g](g.svg)"
    assert metadata.absolute_links(text, "https://x/y") == (
        "[a](https://x/y/docs/a.md#b), [c](https://c.d/e), [f](#f), ![g](https://x/y/g.svg)"
    )
    readme = metadata.absolute_links((ROOT / "README.md").read_text(), "https://x")
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert len(targets) > 10
    assert all(target.startswith(("https://", "#")) for target in targets)


@pytest.mark.usefixtures("in_project", "no_torch")
def test_sources_depend_on_any_supported_torch_and_build_where_they_are_unpacked(
    tmp_path, monkeypatch
):
    name = build_backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4
        archive.extractall(tmp_path, **safely)
    unpacked = tmp_path / name.removesuffix(".tar.gz")
    made = message_from_string((unpacked / "PKG-INFO").read_text())
    required = [Requirement(text) for text in made.get_all("Requires-Dist")]
    assert Requirement(SUPPORTED.requirement()) in required
    assert "Requires-Dist" in made.get_all("Dynamic")
    for part in (
        "third_party/xbyak/xbyak.h",
        "cmake/LoomTorch.cmake",
        "CMakeLists.txt",
        "cpp/loom",
    ):
        assert (unpacked / part).exists()
    assert not (unpacked / "build").exists()
    monkeypatch.chdir(unpacked)
    settings = {"torch": str(make_torch(tmp_path, f"{SUPPORTED.oldest}.0"))}
    folder = build_backend.prepare_metadata_for_build_wheel(str(tmp_path), settings)
    assert read_metadata(tmp_path / folder)["Name"] == "torch-loom"
    assert os.environ[torch_location.SETTING] == settings["torch"]
