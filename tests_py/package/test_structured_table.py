# SPDX-License-Identifier: BSD-3-Clause
"""cmake/codegen/structured.py: which operators structured.yaml has for a version of torch."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="the generator needs pyyaml")
ROOT = Path(__file__).parents[2]

TABLE = """
torch: {since: "2.13", until: "2.16"}
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


OPERATORS = {"mul.Tensor": None, "linalg_old": None, "cat": None, "linalg_between": None}


def test_only_operators_of_the_version_have_to_be_there(structured, read):
    table = read(TABLE, "2.13")
    assert structured.check_complete(table, OPERATORS) is table


def test_an_unknown_operator_is_an_error_with_the_line_to_add(structured, read):
    groups = {**OPERATORS, "linalg_new": None}
    with pytest.raises(SystemExit) as raised:
        structured.check_complete(read(TABLE, "2.13"), groups)
    line = "  linalg_new: {how: deferred; no policy has been tried with it}"
    assert line in str(raised.value).split("\n")
    del groups["linalg_old"]
    with pytest.raises(SystemExit) as raised:
        structured.check_complete(read(TABLE, "2.14"), groups)
    line = '  linalg_new: {how: deferred; no policy has been tried with it, since: "2.14"}'
    assert line in str(raised.value).split("\n")
    # The line is one that the table takes.
    mended = read(f"{TABLE}{line}\n".replace('{how: New, since: "2.15"}', "{how: N}"), "2.13")
    assert "linalg_new" in set(mended.listed())


def test_an_operator_that_is_gone_is_an_error_with_the_line_to_change(structured, read):
    with pytest.raises(SystemExit, match=r'linalg_new: \{how: \.\.\., until: "2\.15"\}'):
        structured.check_complete(read(TABLE, "2.15"), {"mul.Tensor": None, "cat": None})


def test_a_newer_torch_is_built_with_and_warned_of(structured, read, capsys):
    table = structured.check_complete(
        read(TABLE, "2.16.0"), {"mul.Tensor": None, "cat": None, "linalg_newer": None}
    )
    assert set(table.listed()) == {"mul.Tensor", "cat"}
    warning = capsys.readouterr().err
    assert "made for torch before 2.16, and this is 2.16.0" in warning
    assert "wait for their operands: linalg_newer." in warning
    assert "are gone: linalg_new." in warning


def test_no_operator_is_listed_twice(structured, read):
    table = read(TABLE.replace("linalg_old: {", "cat: {"), "2.13")
    with pytest.raises(SystemExit, match="lists twice: cat"):
        structured.check_complete(table, OPERATORS)


def test_the_table_has_what_the_installed_torch_has(structured):
    torch = pytest.importorskip("torch")
    path = ROOT / "cpp" / "loom" / "ops" / "aten" / "structured.yaml"
    table = structured.Table.read(path, torch.__version__)
    assert structured.check_complete(table, structured.structured_groups()) is table
