"""The folder of ``headscape organize``: what may be done there again, and what is refused early."""

import json
import shutil

import numpy as np
import pytest

import headscape as hs
from cli_runs import headscape_here, one_line, one_object


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("organize") / "capture"
    hs.Capture.from_arrays(rng.normal(size=(2, 3, 20, 4)), rng.normal(size=(2, 3, 20, 4))).save(folder)
    return folder


@pytest.fixture
def organize(capture, tmp_path, monkeypatch, capsys):
    def run(*options, out="out"):
        common = ("organize", capture, "-o", tmp_path / out, "--threads", 1, "--figures", "none")
        return headscape_here(monkeypatch, capsys, *common, *options)

    return run


@pytest.mark.parametrize("mode", [(), ("--memory", "1GiB"), ("--memory", "1GiB", "--approximate")])
def test_more_iterations_go_on_and_fewer_are_refused(organize, tmp_path, mode):
    assert organize(*mode, "--n-iter", 1).returncode == 0
    assert len(hs.Organization.load(tmp_path / "out" / "organization").history["head"]) == 1
    blocks = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("blocks/parts/*")}
    assert bool(blocks) == bool(mode)
    assert organize(*mode, "--n-iter", 2).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in blocks} == blocks
    fresh = one_object(organize(*mode, "--n-iter", 2, "--json", out="fresh"))
    again = one_object(organize(*mode, "--n-iter", 2, "--json"))
    assert again["axes"] == fresh["axes"]
    assert again["parameters"] == fresh["parameters"]
    one_line(organize(*mode, "--n-iter", 1), "was made with --n-iter 2, but this run is with --n-iter 1.")
    assert len(hs.Organization.load(tmp_path / "out" / "organization").history["head"]) == 2


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_other_modes_are_refused_by_the_names_of_their_options(organize, options):
    memory = ("--memory", "1GiB")
    assert organize(*memory, "--heads-only").returncode == 0
    assert organize(*memory, "--heads-only").returncode == 0
    one_line(
        organize(*memory, *options),
        "was made with --heads-only, but this run is without --heads-only. Choose",
    )
    approximate = organize(*memory, "--heads-only", "--approximate", *options)
    one_line(approximate, "was made without --approximate, but this run is with --approximate. Choose")
    one_line(
        organize(*memory, "--heads-only", "--seed", 3, *options),
        "with --seed 0, but this run is with --seed 3",
    )


def test_an_unfinished_run_is_known_by_its_blocks(organize, tmp_path):
    assert organize("--memory", "1GiB").returncode == 0
    shutil.rmtree(tmp_path / "out" / "organization")
    (tmp_path / "out" / "summary.json").unlink()
    one_line(
        organize("--memory", "1GiB", "--beta", 0), "was made with --beta 1.0, but this run is with --beta 0"
    )
    assert organize("--memory", "1GiB").returncode == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["parameters"]["beta"] == 1.0


def test_other_data_are_refused(organize, tmp_path, monkeypatch, capsys):
    assert organize("--n-iter", 1).returncode == 0
    before = hs.Organization.load(tmp_path / "out" / "organization").input_hash
    np.save(tmp_path / "x.npy", np.random.default_rng(1).random((8, 9, 3)))
    other = ("organize", tmp_path / "x.npy", "-o", tmp_path / "out", "--n-iter", 1, "--figures", "none")
    one_line(headscape_here(monkeypatch, capsys, *other), "holds the organization of other data")
    one_line(organize("--n-iter", 1, "--memory", "1GiB"), "holds the organization of other data")
    assert not (tmp_path / "out" / "blocks").exists()
    assert hs.Organization.load(tmp_path / "out" / "organization").input_hash == before


def test_what_a_killed_run_left_behind_is_gone_on_with_or_cleared_away(organize, tmp_path):
    out = tmp_path / "out"
    assert organize("--n-iter", 1).returncode == 0
    (out / "organization").rename(out / "organization.new")  # killed before the new one had its name
    assert organize("--n-iter", 1).returncode == 0
    assert {path.name for path in out.iterdir()} == {
        "organization",
        "summary.json",
        *(f"tree_{axis}.nwk" for axis in ("query", "key", "head")),
    }
    header = out / "organization" / "headscape.json"
    header.write_text(header.read_text()[:40])
    one_line(organize("--n-iter", 1), "headscape.json is damaged")
    assert organize("--memory", "1GiB", "--n-iter", 1, out="begun").returncode == 0
    for folder in ("blocks", "organization"):
        shutil.rmtree(tmp_path / "begun" / folder / "parts")
    assert organize("--memory", "1GiB", "--n-iter", 1, "--seed", 1, out="begun").returncode == 0
