# SPDX-License-Identifier: BSD-3-Clause
"""cmake/codegen/structured.py: which operators structured.yaml has for a version of torch."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="the generator needs pyyaml")
ROOT = Path(__file__).parents[2]

TABLE = """
headers: {}
families:
  pointwise:
    mul.Tensor: Always
    linalg_new: {how: New, since: "2.15"}
    linalg_old: {how: Old, until: "2.14"}
by_hand:
  cat: always
  linalg_between: {how: for some time, since: "2.9", until: "2.15"}
"""


@pytest.fixture(scope="module")
def structured():
    path = ROOT / "cmake" / "codegen" / "structured.py"
    spec = importlib.util.spec_from_file_location("structured", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["structured"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["structured"]


@pytest.fixture
def read(structured, tmp_path):
    def read(text, version):
        path = tmp_path / "structured.yaml"
        path.write_text(text)
        return structured.Table.read(path, version)

    return read


@pytest.mark.parametrize(
    ("version", "others"),
    [
        ("2.8", {"linalg_old"}),
        ("2.13", {"linalg_old", "linalg_between"}),
        ("2.13.1+cpu", {"linalg_old", "linalg_between"}),
        ("2.14", {"linalg_between"}),
        ("2.15.0", {"linalg_new"}),
        ("3.0", {"linalg_new"}),
    ],
)
def test_a_version_has_the_operators_that_name_it(read, version, others):
    assert set(read(TABLE, version).listed()) == {"mul.Tensor", "cat"} | others


def test_what_an_operator_is_does_not_depend_on_how_it_is_written(read):
    table = read(TABLE, "2.15")
    assert table.families["pointwise"] == {"mul.Tensor": "Always", "linalg_new": "New"}
    assert table.by_hand == {"cat": "always"}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{how: New, since: 2.10}", "quote 2.1"),
        ('{how: New, from: "2.15"}', "linalg_new has unknown keys: from"),
    ],
)
def test_mistakes_are_named(read, entry, why):
    text = TABLE.replace('{how: New, since: "2.15"}', entry)
    with pytest.raises(SystemExit, match=why):
        read(text, "2.15")


def test_only_operators_of_the_version_have_to_be_there(structured, read):
    operators = {"mul.Tensor": None, "linalg_old": None, "cat": None, "linalg_between": None}
    structured.check_complete(read(TABLE, "2.13"), operators)
    with pytest.raises(SystemExit, match="not a structured operator: linalg_new"):
        structured.check_complete(read(TABLE, "2.15"), {"mul.Tensor": None, "cat": None})
    with pytest.raises(SystemExit, match="not listed: linalg_new"):
        structured.check_complete(read(TABLE, "2.13"), {**operators, "linalg_new": None})


def test_the_table_has_what_the_installed_torch_has(structured):
    torch = pytest.importorskip("torch")
    path = ROOT / "cpp" / "loom" / "ops" / "aten" / "structured.yaml"
    table = structured.Table.read(path, torch.__version__)
    structured.check_complete(table, structured.structured_groups())
    later = structured.Table.read(path, "2.15")
    assert set(later.listed()) - set(table.listed()) == {"_scaled_mm_v2", "linalg_polar"}
