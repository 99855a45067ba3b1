"""``headscape reproduce`` as a user starts it: claims of the papers in, verdicts, a page and files out."""

import json
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("transformers")

from PIL import Image

import headscape as hs
from cli_runs import headscape_here, one_line, one_object
from headscape.study.reproduction.random_images import drawn_images

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL, VISION = EXAMPLES / "tiny_model", EXAMPLES / "small_vit"
SMALL = ("--quick", "--language", MODEL, "--encoder", MODEL)


@pytest.fixture
def run(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "250")
    return lambda *words: headscape_here(monkeypatch, capsys, "reproduce", *words)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A trained image model with labeled images, and models that the hub does not have."""
    images = tmp_path_factory.mktemp("images")
    for number, picture in enumerate(drawn_images(12, 24)):
        path = images / ("cat", "dog", "frog")[number % 3] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(path)
    models = [str(MODEL), "no-such-model/"]
    return {"vision": str(VISION), "images": str(images), "models": models}


@pytest.fixture(scope="module")
def everything(tmp_path_factory, given):
    """All experiments at their smallest, on the tiny models."""
    out = tmp_path_factory.mktemp("reproduction")
    return out, hs.reproduce("all", out, quick=True, language=str(MODEL), encoder=str(MODEL), **given)


def test_every_experiment_runs_and_says_what_was_found(everything):
    _, found = everything
    assert len(found.evidence) == 21
    for name, evidence in found.evidence.items():
        assert evidence.observations, name
        for one in evidence.observations:
            assert one.found.endswith((".", ".)"))
            assert one.verdict == "not tested" or any(letter.isdigit() for letter in one.found), name
    # What holds whatever the network: the energy's algebra, and the counter-example to equation 14.
    assert found.evidence["energy-field"].verdict == "agrees"
    assert found.evidence["lengths-and-texts"].verdict == "agrees"
    constructed = found.evidence["equation-14"].observations[-1]
    assert constructed.network == "constructed head"
    assert constructed.verdict == "disagrees"


def test_untrained_networks_are_controls_and_unreachable_models_are_not_tested(everything):
    _, found = everything
    for name in ("figure-3", "table-1", "failure-signatures"):
        seen = {one.network: one.control for one in found.evidence[name].observations}
        assert seen["small_vit"] is False
        assert seen["small ViT (random weights)"] is True
    models = [(one.network, one.verdict) for one in found.evidence["key-incoherence"].observations]
    assert ("no-such-model/", "not tested") in models
    assert [name for name, verdict in models if verdict != "not tested"].count("tiny_model") == 3
    ablated = [one.network for one in found.evidence["low-entropy-ablation"].observations]
    assert ablated.count("tiny_model") == 2
    assert ablated.count("small_vit") == 1


def test_every_part_of_the_run_is_timed_once(everything):
    _, found = everything
    experiments = {f"experiment {one.name}" for one in found.experiments}
    assert experiments < set(found.times)
    shared = {"language: organization", "vision: softmax of heads", "transformer-xl: training"}
    assert shared < set(found.times)
    assert found.summary()["times"] == found.times


def test_the_folder_holds_page_tables_pictures_and_summary(everything):
    out, found = everything
    page = found.report(out / "report.html").read_text(encoding="utf-8")
    for one in found.experiments:
        assert f'id="{one.name}"' in page
        assert one.name in page
    assert page.count("data:image/png;base64,") == sum(len(e.pictures) for e in found.evidence.values())
    assert "<script" not in page
    summary = json.loads((out / "summary.json").read_text())
    assert [row["name"] for row in summary["experiments"]] == [one.name for one in found.experiments]
    assert (out / "table-1" / "language.csv").exists()
    spread = pd.read_csv(out / "delocalization" / "language.csv")
    assert spread["participation"].between(0, 1).all()
    assert (spread["mu_K"] >= 1).all()
    assert (out / "figure-3" / "language-tree.png").read_bytes().startswith(b"\x89PNG")


def test_it_loads_again_and_does_nothing_twice(everything, given, run):
    out, found = everything
    words = ["--vision", given["vision"], "--images", given["images"]]
    words += [word for model in given["models"] for word in ("--models", model)]
    written = {path: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
    again = one_object(run("all", *SMALL, *words, "-o", out, "--json"))
    assert {path: path.stat().st_mtime_ns for path in (out / "parts").iterdir()} == written
    assert [row["verdict"] for row in again["experiments"]] == [
        found.evidence[one.name].verdict for one in found.experiments
    ]
    loaded = hs.Reproduction.load(out)
    assert loaded.headline == found.headline
    assert loaded.evidence["table-1"].observations == found.evidence["table-1"].observations


def test_another_setting_needs_another_folder(everything, run):
    out, _ = everything
    one_line(run("table-1", "--quick", "--seed", 3, "--language", MODEL, "-o", out), "seed=0")


def test_the_list_names_every_experiment(run):
    told = run("--list")
    assert told.returncode == 0
    listed = one_object(run("--list", "--json"))
    assert len(listed["experiments"]) == 21
    for row in listed["experiments"]:
        assert row["name"] in told.stdout
        assert 0 < row["minutes"] < listed["minutes"]


def test_several_texts_are_read_as_files(run, tmp_path):
    for name in ("first", "second"):
        (tmp_path / f"{name}.txt").write_text(f"The {name} text goes on and on, word after word. " * 60)
    texts = [word for name in ("first", "second") for word in ("--text", tmp_path / f"{name}.txt")]
    names = ("figure-5", "lengths-and-texts")
    found = one_object(run(*names, *SMALL, *texts, "-o", tmp_path / "out", "--json"))
    batches, lengths = found["experiments"]
    assert batches["observations"][0]["data"] == "3 random windows of 32 tokens; first.txt, second.txt"
    assert [one["data"].split("; ")[1] for one in lengths["observations"]] == ["first.txt", "second.txt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--list"),
        (("figure-9",), "figure-9"),
        (("table-1", "--text", "nowhere.txt"), "nowhere.txt"),
        (("table-1", "--language", "no-such-model/"), "no-such-model"),
    ],
)
def test_bad_input_is_one_line(run, tmp_path, words, said):
    one_line(run(*words, "-o", tmp_path / "out"), said)
