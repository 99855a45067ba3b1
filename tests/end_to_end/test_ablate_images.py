"""``headscape ablate`` on a classifier of images, as a user runs it: a folder per label gives accuracies."""

import json
from functools import partial

import numpy as np
import pytest
from PIL import Image

import headscape as hs
from cli_runs import headscape_here, without_progress
from tiny_models import tiny_classifier

LABELS = ("cat", "dog", "ship")
METHODS = "haar,gradient,reconstruction+repair,random"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the program in this process, which saves the seconds that importing takes."""
    monkeypatch.setenv("COLUMNS", "200")
    return partial(headscape_here, monkeypatch, capsys)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "vit"
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: i for i, name in enumerate(LABELS)}}
    tiny_classifier("ViT", **names).save_pretrained(folder)
    return folder


def save_images(folder, labels, each):
    rng = np.random.default_rng(0)
    for label in labels:
        (folder / label).mkdir(parents=True)
        for number in range(each):
            # Of another size than the model's 16 x 16: they are resized.
            Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(
                folder / label / f"{number:03d}.png"
            )
    return folder


def test_a_folder_per_label_gives_accuracies_verdicts_and_both_figures(run, model, tmp_path):
    images = save_images(tmp_path / "images", LABELS, 6)
    out = tmp_path / "study"
    words = ["--methods", METHODS, "--counts", "1,2,4", "--calibration-windows", 3, "--json"]
    done = run("ablate", model, "--images", images, *words, "-o", out)
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["windows"], summary["heads"], summary["loss"]) == (9, 8, "cross-entropy of the labels")
    assert summary["parameters"]["calibration_windows"] == 3
    assert 0 <= summary["intact_accuracy"] <= 1
    assert len(summary["curves"]) == 4 * 3
    assert all(0 <= row["accuracy"] <= 1 for row in summary["curves"])
    assert [row["method"] for row in summary["verdicts"]] == METHODS.split(",")[:-1]
    assert all("than random" in row["word"] for row in summary["verdicts"])
    assert sorted(path.name for path in (out / "figures").iterdir()) == [
        "ablation.png",
        "ablation_accuracy.png",
    ]
    assert json.loads(done.stdout)["curves"] == summary["curves"]


def test_the_accuracy_is_that_of_the_model_itself(run, model, tmp_path):
    import torch
    from transformers import AutoModelForImageClassification

    images = save_images(tmp_path / "images", LABELS, 4)
    out = tmp_path / "study"
    words = ["--methods", "output-norm", "--counts", "1", "--figures", "none", "--quiet"]
    assert run("ablate", model, "--images", images, *words, "-o", out).returncode == 0
    evaluated = [(label, number) for number in range(4) for label in LABELS][6:]
    pixels = []
    for label, number in evaluated:
        with Image.open(images / label / f"{number:03d}.png") as picture:
            resized = picture.resize((16, 16), Image.Resampling.BILINEAR)
            pixels.append(np.asarray(resized, dtype=np.float32).transpose(2, 0, 1) / 127.5 - 1)
    with torch.no_grad():
        logits = AutoModelForImageClassification.from_pretrained(model)(
            torch.from_numpy(np.stack(pixels))
        ).logits
    right = [LABELS[i] == label for i, (label, _) in zip(logits.argmax(1), evaluated, strict=True)]
    study = hs.AblationStudy.load(out)
    np.testing.assert_array_equal(study.intact_accuracy, right)


def test_people_read_how_many_answers_stay_right(run, model, tmp_path):
    images = save_images(tmp_path / "images", LABELS, 4)
    words = ["--methods", "output-norm,random", "--counts", "2,4", "--draws", 3, "--figures", "none"]
    done = run("ablate", model, "--images", images, *words, "-o", tmp_path / "study")
    shown = " ".join(done.stdout.split())
    assert "Loss increase (cross-entropy of the labels" in shown
    assert "Accuracy (intact" in shown


def test_images_without_labels_are_judged_by_the_change_of_the_output(run, model, tmp_path):
    images = save_images(tmp_path / "images", ["."], 4)
    words = ["--methods", "output-norm", "--counts", "1", "--json"]
    done = run("ablate", model, "--images", images, *words, "-o", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["intact_accuracy"] is None
    assert [path.rpartition("/")[2] for path in summary["figures"]] == ["ablation.png"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "horse"], "labels must be among cat, dog, ship, but one is 'horse'"),
        ([], "no images"),
    ],
)
def test_bad_folders_are_one_line_and_exit_code_2(run, model, tmp_path, labels, message):
    (tmp_path / "images").mkdir()
    images = save_images(tmp_path / "images", labels, 4)
    done = run("ablate", model, "--images", images, "--methods", "random", "-o", tmp_path / "study")
    assert done.returncode == 2
    said = without_progress(done.stderr)
    assert said.startswith("headscape: ")
    assert message in said
    assert said.count("\n") == 1
