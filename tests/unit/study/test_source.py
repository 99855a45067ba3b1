"""Every command takes every source that makes sense for it: the table of the docs, walked."""

import re
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from cli_runs import headscape_here, without_progress
from headscape.errors import InputError
from headscape.models.loading import Model
from headscape.study.source import kind_of, open_source
from headscape.tensor.tensor_windows import TensorWindows
from studies import small_capture, small_study

pytest.importorskip("transformers")

ROOT = Path(__file__).parents[3]
TINY = ROOT / "examples" / "tiny_model"
QUICK = {
    "analyze": ["--stages", "entropy", "--n-iter", "1", "--set", "k=20"],
    "patterns": ["--figures", "none"],
    "entropy": ["--n-iter", "1", "--k", "20", "--figures", "none"],
    "energy": ["--figures", "none"],
    "softmax": ["--n-iter", "1", "--heads", "0.0", "--figures", "none"],
    "organize": ["--n-iter", "1", "--figures", "none"],
    "capture": ["--windows", "1"],
    "check": [],
    "ablate": ["--methods", "output-norm", "--counts", "1", "--windows", "1", "--calibration-windows", "1"],
    "prune": ["--heads", "1.0,1.1", "--windows", "1", "--calibration-windows", "1"],
}
OWN_OPTIONS = {"organize", "check", "prune", "ablate", "capture"}


def table():
    """The rows of the docs' table: command, then yes or no for every source."""
    text = (ROOT / "docs" / "guides" / "sources.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    header = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    rows = {}
    for line in lines[1:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found = re.fullmatch(r"`headscape (\w+)`", name)
        if found:
            rows[found.group(1)] = dict(zip(header, (cell == "yes" for cell in cells), strict=True))
    return rows


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    small_capture(windows=1).save(folder / "capture")
    small_study(windows=1, stages=["entropy"], out=folder / "study")
    np.save(folder / "tensor.npy", small_capture(windows=1).tensor(0, "probs").data)
    pruned = hs.prune(hs.load_model(TINY).model, [(0, 0), (0, 1)])
    hs.save_pruned(pruned, folder / "pruned", tokenizer=hs.load_model(TINY).tokenizer)
    return {
        "model": TINY,
        "pruned model": folder / "pruned",
        "capture": folder / "capture",
        "study": folder / "study",
        "tensor": folder / "tensor.npy",
    }


@pytest.mark.parametrize("source", ["model", "pruned model", "capture", "study", "tensor"])
@pytest.mark.parametrize("command", list(QUICK))
def test_the_table_of_sources_is_true(command, source, sources, tmp_path, monkeypatch, capsys):
    words = [command, sources[source], *QUICK[command]]
    words += [] if command == "check" else ["-o", tmp_path / "out"]
    if source in ("model", "pruned model") and command != "check":
        words += ["--length", "16"] + (["--windows", "1"] if command not in OWN_OPTIONS else [])
    if source == "tensor":
        words += ["--field", "probs"] if command not in ("capture", "ablate", "prune", "energy") else []
    done = headscape_here(monkeypatch, capsys, *words)
    expected = table()[command][source]
    assert done.returncode == (0 if expected else 2), done.stderr
    if not expected:
        assert without_progress(done.stderr).count("\n") == 1


def test_sources_open_as_what_they_are(sources):
    kinds = {name: type(open_source(path)) for name, path in sources.items()}
    assert kinds["model"] is kinds["pruned model"] is Model
    assert kinds["capture"] is hs.Capture
    assert kinds["study"] is hs.Study
    assert kinds["tensor"] is TensorWindows
    assert kind_of(sources["capture"]) == "capture"


def test_objects_open_as_they_are(sources):
    capture, study = small_capture(windows=1), hs.Study.load(sources["study"])
    assert open_source(capture) is capture
    assert open_source(study) is study
    assert open_source(np.zeros((4, 4, 2))).heads == ((0, 0), (0, 1))
    assert open_source([np.zeros((4, 4, 2))] * 3).n_windows == 3
    loaded = hs.load_model(TINY)
    assert open_source(loaded) is loaded
    assert isinstance(open_source(loaded.model), Model)
    assert open_source(hs.prune(loaded.model, [(0, 0), (0, 1)])).model.config.headscape_pruning


def test_four_axes_need_their_names():
    with pytest.raises(InputError, match="layer,head,query,key"):
        open_source(np.zeros((2, 3, 4, 4)))
    assert len(open_source(np.zeros((2, 3, 4, 4)), axes="layer,head,query,key").heads) == 6


def test_windows_with_other_heads_are_refused():
    windows = open_source([np.zeros((4, 4, 2)), np.zeros((4, 4, 3))])
    with pytest.raises(InputError, match="same heads"):
        windows.tensor(1)


def test_tensors_are_analyzed_saved_and_loaded(tmp_path):
    x = small_capture(windows=2)
    tensors = [x.tensor(window, "probs") for window in range(2)]
    study = hs.analyze(tensors, out=tmp_path, n_iter=1, k=20)
    again = hs.Study.load(tmp_path)
    assert list(study.heads) == list(again.heads)
    np.testing.assert_allclose(
        study.heads["haar_entropy"], hs.analyze(x, n_iter=1, k=20).heads["haar_entropy"]
    )
    assert any("Energy was left out" in sentence for sentence in study.findings)
    with pytest.raises(InputError, match="only tensors were given"):
        _ = study.capture
