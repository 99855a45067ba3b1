"""``headscape entropy`` as a user runs it."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from headscape.cli import main
from headscape.tensor.synthetic import planted_tensor


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the program in this process, which saves the seconds that importing takes."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words):
        monkeypatch.setattr("sys.argv", ["headscape", *map(str, words)])
        with pytest.raises(SystemExit, match=r"^[02]$") as end:
            main.run()
        shown = capsys.readouterr()
        return Done(end.value.code, shown.out, shown.err)

    return call


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensors")
    x = planted_tensor(16, 18, layers=2, heads_per_layer=4, groups=2).data * np.linspace(0.5, 2, 8)
    rng = np.random.default_rng(0)
    paths = []
    for number in range(3):
        paths.append(folder / f"window{number}.npy")
        np.save(paths[-1], (x + 0.02 * rng.standard_normal(x.shape)).astype(np.float32))
    return paths


def test_three_windows_leave_tables_pictures_and_a_study(run, files, tmp_path):
    done = run(
        "entropy", *files, "-o", tmp_path, "--k", 80, "--n-iter", 2, "--regularity", "--sensitivity", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["windows"] == 3
    assert summary["stability"]["kendall_w"]["estimate"] > 0.8
    assert summary["verdict"].startswith("The ranks repeat over 3 windows")
    assert "theorem 1" in summary["regularity"]["verdict"]
    assert {row["parameter"] for row in summary["sensitivity"]["reruns"]} >= {
        "eps_scale",
        "init",
        "tree",
        "k",
    }
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    study = hs.EntropyStudy.load(tmp_path / "study")
    x = np.load(files[1])
    np.testing.assert_allclose(study.entropies[1], hs.head_entropy(x, hs.organize(x, n_iter=2).trees, 80))
    rows = list(csv.DictReader((tmp_path / "heads.csv").open()))
    assert len(rows) == 8
    assert float(rows[3]["entropy"]) == pytest.approx(study.entropies[:, 3].mean())
    assert "holder_mixed" in rows[0]
    assert all(Path(path).stat().st_size > 0 for path in summary["figures"])


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(0)
    queries, keys = rng.standard_normal((2, 2, 3, 16, 8)), rng.standard_normal((2, 2, 3, 16, 8))
    path = tmp_path_factory.mktemp("captures") / "capture"
    hs.Capture.from_arrays(queries, keys).save(path)
    return path


def test_a_capture_gives_windows_and_other_fields(run, capture, tmp_path):
    words = ["--k", 60, "--n-iter", 1, "--fields", "logits,energy", "--figures", "none", "--json"]
    done = run("entropy", capture, "-o", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["windows"], summary["field"], summary["heads"]) == (2, "probs", 6)
    choices = [(row["parameter"], row["value"]) for row in summary["sensitivity_to_choices"]]
    assert choices == [("k", "30"), ("k", "120"), ("field", "logits"), ("field", "energy")]
    study = hs.EntropyStudy.load(tmp_path / "study")
    x = hs.Capture.load(capture).tensor(1, "logits")
    np.testing.assert_allclose(study.by_field[0, 1], hs.head_entropy(x, hs.organize(x, n_iter=1).trees, 60))


def test_only_some_windows_of_a_capture_and_another_field(run, capture, tmp_path):
    words = ["--k", 60, "--n-iter", 1, "--windows", 1, "--field", "energy", "--figures", "none", "--json"]
    summary = json.loads(run("entropy", capture, "-o", tmp_path, *words).stdout)
    assert (summary["windows"], summary["field"]) == (1, "energy")


def test_an_unknown_stack_is_refused(run, capture, tmp_path):
    done = run("entropy", capture, "-o", tmp_path, "--stack", "cross")
    assert done.returncode == 2
    assert "stack must be one of self, but is 'cross'" in done.stderr


def test_csv_prints_the_table_and_nothing_else(run, files, tmp_path):
    done = run(
        "entropy", files[0], "-o", tmp_path, "--k", "0.25", "--n-iter", 1, "--csv", "--figures", "none"
    )
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["head"] for row in rows] == [str(h) for h in range(8)]
    assert not (tmp_path / "figures").exists()


def test_people_read_the_verdict_and_the_caution(run, files, tmp_path):
    done = run("entropy", *files, "-o", tmp_path, "--k", 80, "--n-iter", 1, "--figures", "none")
    assert "The ranks repeat over 3 windows" in done.stdout
    assert "not that the model can spare it" in done.stdout
    assert "Heads most often in the top and bottom" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "400"], "k must be from 1 to the number of tensor wavelets, 288, but is 400"),
        (["--k", "many"], "--k must be a whole number or a share"),
        (["--k", "80", "--fields", "logits"], "needs a capture"),
        (["--json", "--csv"], "give one of them"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, files, tmp_path, words, message):
    done = run("entropy", files[0], "-o", tmp_path, "--n-iter", 1, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("headscape: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
