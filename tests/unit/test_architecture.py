"""The house: which imports may wait inside functions, and how long a file of the upper half may be."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "headscape"
SLOW = {"torch", "transformers", "numba", "matplotlib", "plotly", "dask", "distributed", "lightning", "ot"}
UPPER = ("models", "recorder", "ablation", "pruning", "monitor", "report", "study", "cli")
FILES = sorted(SRC.rglob("*.py"))
LONGEST = 350


def imported(nodes):
    """The modules that import statements name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def local_imports(tree):
    """The modules that functions import."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {name for function in functions for name in imported(ast.walk(function))}


def is_slow(name):
    """A package that takes seconds to load, its bridge in another package, or one of our files of compiled code."""
    own = SRC.parent / f"{name.replace('.', '/')}.py"
    if own.is_file():
        return any(
            is_slow(other) for other in imported(ast.parse(own.read_text()).body) if "headscape" not in other
        )
    return name.partition(".")[0] in SLOW or name == "safetensors.torch"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_functions_import_only_what_takes_seconds_to_load(path):
    if path.is_relative_to(SRC / "cli"):
        pytest.skip("commands may import late, so that --help is quick")
    late = local_imports(ast.parse(path.read_text()))
    assert {name for name in late if not is_slow(name)} == set()


@pytest.mark.parametrize("room", UPPER)
def test_no_file_of_the_upper_half_is_long(room):
    lengths = {path.name: len(path.read_text().splitlines()) for path in (SRC / room).rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}
