"""``headscape entropy`` as a user runs it: the analysis with one stage, on tensors, captures and studies."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import headscape as hs
from cli_runs import headscape_here, one_line, one_object
from headscape.tensor.synthetic import planted_tensor


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: headscape_here(monkeypatch, capsys, "entropy", *words)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensors")
    x = planted_tensor(16, 18, layers=2, heads_per_layer=4, groups=2).data * np.linspace(0.5, 2, 8)
    rng = np.random.default_rng(0)
    paths = []
    for number in range(4):
        paths.append(folder / f"window{number}.npy")
        np.save(paths[-1], (x + 0.02 * rng.standard_normal(x.shape)).astype(np.float32))
    return paths


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(0)
    queries, keys = rng.standard_normal((2, 2, 3, 16, 8)), rng.standard_normal((2, 2, 3, 16, 8))
    path = tmp_path_factory.mktemp("captures") / "capture"
    hs.Capture.from_arrays(queries, keys).save(path)
    return path


def test_several_tensors_are_windows_and_leave_a_study(run, files, tmp_path):
    summary = one_object(run(*files, "-o", tmp_path, "--k", 80, "--n-iter", 2, "--sensitivity", "--json"))
    assert (summary["windows"], summary["heads"]) == (4, 8)
    study = hs.Study.load(tmp_path)
    assert study["entropy"].stability.kendall_w.estimate > 0.8
    assert study["entropy"].stability.verdict in summary["findings"]
    x = np.load(files[1])
    trees = hs.organize(x, n_iter=2).trees
    np.testing.assert_allclose(study["entropy"].entropies[1], hs.head_entropy(x, trees, 80))
    rows = list(csv.DictReader((tmp_path / "heads.csv").open()))
    assert float(rows[3]["haar_entropy"]) == pytest.approx(study["entropy"].entropies[:, 3].mean())
    reruns = list(csv.DictReader((tmp_path / "sensitivity.csv").open()))
    assert {row["parameter"] for row in reruns} >= {"eps_scale", "init", "tree", "k"}
    assert all(Path(path).stat().st_size > 0 for path in summary["figures"])
    assert Path(summary["report"]).stat().st_size > 0


def test_a_capture_is_compared_over_fields(run, capture, tmp_path):
    words = ["--k", 60, "--n-iter", 1, "--fields", "logits,energy", "--figures", "none", "--json"]
    one_object(run(capture, "-o", tmp_path, *words))
    study = hs.Study.load(tmp_path)["entropy"]
    choices = study.sensitivity()[["parameter", "value"]].to_numpy().tolist()
    assert choices == [["k", "30"], ["k", "120"], ["field", "logits"], ["field", "energy"]]
    x = hs.Capture.load(capture).tensor(1, "logits")
    np.testing.assert_allclose(study.by_field[0, 1], hs.head_entropy(x, hs.organize(x, n_iter=1).trees, 60))


def test_a_study_gives_its_windows_and_trees(run, capture, tmp_path):
    words = ["--n-iter", 1, "--figures", "none", "--json"]
    one_object(run(capture, "-o", tmp_path / "first", "--k", 60, *words))
    first = hs.Study.load(tmp_path / "first")
    one_object(run(tmp_path / "first", "-o", tmp_path / "second", "--k", 30, *words))
    second = hs.Study.load(tmp_path / "second")
    np.testing.assert_array_equal(second.organization.emd["head"], first.organization.emd["head"])
    np.testing.assert_allclose(second["entropy"].entropies, first["entropy"].by_k[0])


def test_another_field_of_a_capture(run, capture, tmp_path):
    words = ["--k", 60, "--n-iter", 1, "--field", "energy", "--figures", "none", "--json"]
    assert one_object(run(capture, "-o", tmp_path, *words))["parameters"]["field"] == "energy"


def test_csv_prints_the_table_and_nothing_else(run, files, tmp_path):
    done = run(files[0], "-o", tmp_path, "--k", "0.25", "--n-iter", 1, "--csv", "--figures", "none")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["head"] for row in rows] == [str(head) for head in range(8)]
    assert not (tmp_path / "figures").exists()


def test_people_read_findings_and_the_caution(run, files, tmp_path):
    done = run(*files, "-o", tmp_path, "--k", 80, "--n-iter", 1, "--figures", "none")
    assert "hypothesis" in done.stdout
    assert "heads.csv" in done.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "many"], "--k must be a whole number or a share"),
        (["--k", "80", "--fields", "logits"], "is a tensor of one field"),
        (["--json", "--csv"], "specify one of them"),
        (["--stack", "cross"], "one stack"),
        (["--figures", "bmp"], "figure formats are png, svg, pdf"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, files, tmp_path, words, message):
    one_line(run(files[0], "-o", tmp_path, "--n-iter", 1, *words), message)


def test_an_unknown_stack_is_refused(run, capture, tmp_path):
    one_line(run(capture, "-o", tmp_path, "--stack", "cross"), "stack must be one of self, but is 'cross'")


def test_a_finished_command_prints_the_same_again(run, capture, tmp_path):
    words = [capture, "-o", tmp_path, "--k", 60, "--n-iter", 1, "--figures", "none", "--json"]
    first, again = (one_object(run(*words)) for _ in range(2))
    assert first["findings"] == again["findings"]
    assert json.loads((tmp_path / "summary.json").read_text())["findings"] == first["findings"]
