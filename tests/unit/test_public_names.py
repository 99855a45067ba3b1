"""``import headscape`` is light, and every public name can be fetched, twice, without torch."""

import subprocess
import sys

import headscape as hs


def test_every_name_is_there_and_stays_the_same():
    assert set(hs.__all__) <= set(dir(hs))
    for name in hs.__all__:
        assert getattr(hs, name) is getattr(hs, name)


def test_unknown_names():
    assert not hasattr(hs, "nonsense")


def test_import_is_light_and_needs_no_optional_part():
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "plotly", "gguf", "accelerate"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
import headscape as hs
assert not {"numpy", "scipy", "numba", "zarr", "pandas", "matplotlib"} & set(sys.modules), "import computes too much"
for name in hs.__all__:
    getattr(hs, name), getattr(hs, name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
