"""headscape prune as a user starts it: a smaller model that loads again and costs what was said, or one clear line."""

import json
import resource
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import SafetensorError

pytest.importorskip("transformers")

import headscape as hs
from cli_runs import headscape, headscape_here, one_line, one_object
from headscape.models.sample_text import sample_text
from headscape.pruning.pruned_files import claimed
from tiny_models import tiny_causal_model

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
QUICK = ["--length", "32", "--windows", "6", "--calibration-windows", "6"]
ALONE = [*QUICK, "--sizes", "0"]
OPTIONS = {"length": 32, "windows": 6, "calibration_windows": 6}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    done = headscape(
        *("prune", MODEL, "--fraction", 0.25, "-o", folder / "model", "--manifest", folder / "manifest"),
        *(*QUICK, "--sizes", "2", "--json"),
    )
    return folder / "model", one_object(done), done


@pytest.fixture(scope="module")
def trial():
    return hs.pruning_trial(MODEL, sample_text(), fraction=0.25, **OPTIONS)


def test_the_written_model_is_that_of_the_trial(made, trial):
    folder, summary, _ = made
    loaded = hs.load_pruned(folder)
    assert [tuple(pair) for pair in summary["heads"]] == list(trial.heads)
    assert loaded.removed == tuple(sorted(trial.heads)) == tuple(map(tuple, summary["removed"]))
    judged = hs.ablation_study(
        hs.load_model(folder),
        sample_text(),
        {"mine": np.arange(len(loaded.manifest.layers) * 4.0 - len(loaded.removed))},
        [1],
        **OPTIONS,
    )
    np.testing.assert_allclose(judged.intact, trial.repaired, atol=1e-5)
    ids = torch.arange(5, 29)[None]
    with torch.no_grad():
        wanted = trial.prune().model(ids).logits
        torch.testing.assert_close(loaded.model(ids).logits, wanted, atol=1e-5, rtol=0)


def test_the_summary_is_one_object_with_what_it_cost_and_saved(made, trial):
    folder, summary, done = made
    assert done.stdout.lstrip().startswith("{")
    assert summary["format"] == "headscape/pruning-trial/1"
    assert summary["of"] == 16
    assert summary["increase"]["with repair"][0] == pytest.approx(
        (trial.repaired - trial.intact).mean(), abs=1e-5
    )
    assert summary["out"] == str(folder)
    before, after = summary["savings"]["parameters"]
    assert after < before
    assert summary["speed"]["prefill"][2] > 0
    assert len(summary["findings"]) == 4


def test_the_card_says_what_was_removed_and_what_it_cost(made):
    folder, summary, _ = made
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\ntags: [headscape, pruned]")
    assert f"without {len(summary['removed'])} attention heads" in card
    assert all(sentence in card for sentence in summary["findings"])
    for layer in {layer for layer, _ in summary["removed"]}:
        named = ", ".join(str(head) for at, head in summary["removed"] if at == layer)
        assert f"| {layer} | {named} |" in card


def test_the_manifest_and_the_tokenizer_go_with_it(made):
    folder, summary, _ = made
    manifest = json.loads((folder.parent / "manifest" / "manifest.json").read_text())
    assert manifest["removed"] == summary["removed"]
    assert (folder / "tokenizer.json").is_file()
    assert 'AutoTokenizer.from_pretrained("this-folder")' in (folder / "README.md").read_text()
    config = json.loads((folder / "config.json").read_text())["headscape_pruning"]
    assert config["method"] == "validated"
    assert "6 held-out windows" in config["evaluation"]


def test_python_writes_the_same_card_as_the_command(made, tmp_path):
    folder, _, _ = made
    python = hs.pruning_trial(MODEL, sample_text(), fraction=0.25, sizes=2, **OPTIONS)
    hs.save_pruned(python.prune(), tmp_path / "out")

    def untimed(path):
        card = (path / "README.md").read_text(encoding="utf-8")
        assert "## Measured speed" in card
        before, _, rest = card.partition("## Measured speed")
        after = rest.partition("## What was removed")[2]
        return before, after.partition("<!-- headscape prune")[0].strip()

    assert untimed(tmp_path / "out") == untimed(folder)


def test_the_report_shows_the_sizes_that_the_summary_has(made):
    folder, summary, _ = made
    page = (folder / "report.html").read_text(encoding="utf-8")
    shown = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    points = summary["curve"]["points"]
    assert [point["removed"] for point in shown["points"]] == [point["heads"] for point in points]
    assert [point["increase"] for point in shown["points"]] == [point["increase"][0] for point in points]
    assert [point["name"] or None for point in shown["points"]] == [point["choice"] for point in points]
    assert sum(point["chosen"] for point in points) == 1
    assert {row["name"] for row in shown["cost"]["rows"]} == set(summary["increase"])


def test_a_smaller_cache_by_the_command(tmp_path, monkeypatch, capsys):
    arguments = ("prune", MODEL, "--target-kv", 0.8, "--recover", 3, *ALONE, "-o", tmp_path / "out", "--json")
    summary = one_object(headscape_here(monkeypatch, capsys, *arguments))
    before, after = summary["savings"]["cache_bytes_per_token"]
    assert after <= 0.8 * before
    [reached] = [text for text in summary["findings"] if "key-value cache" in text]
    assert f"cache is {after / before:.3g} of what it was (target 0.8), without " in reached
    assert "with recovery" in summary["increase"]
    assert (tmp_path / "out" / "report.html").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_same_options_replace_a_model_and_others_do_not(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "out"
    arguments = ("prune", MODEL, "--heads", "0.0,0.1", "--no-repair", "-o", folder, *ALONE)
    for same in ((), ("--quiet",), ("--seed", "0")):
        done = headscape_here(monkeypatch, capsys, *arguments, *same)
        assert done.returncode == 0, done.stderr
    done = headscape_here(monkeypatch, capsys, *arguments, "--seed", "1")
    one_line(done, "made with other options")


def test_given_heads_without_repair(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "again"
    arguments = ("prune", MODEL, "--heads", "0.0,0.1", "--no-repair", "-o", folder, *ALONE)
    done = headscape_here(monkeypatch, capsys, *arguments)
    assert done.returncode == 0, done.stderr
    assert "2 of 16 heads were removed" in done.stdout.replace("\n", " ")
    assert hs.load_pruned(folder).removed == ((0, 0), (0, 1))
    assert hs.load_pruned(folder).manifest.repaired == ()


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ("prune", MODEL, "--fraction", 0.25, "--dry-run", *ALONE)
    done = headscape_here(monkeypatch, capsys, *arguments, "-o", tmp_path / "x")
    assert done.returncode == 0, done.stderr
    assert "Nothing was written. These heads would go: " in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert one_object(headscape_here(monkeypatch, capsys, *arguments, "--json"))["out"] is None


def test_a_column_of_a_table_can_choose(tmp_path, monkeypatch, capsys):
    heads = [(layer, head) for layer in range(4) for head in range(4)]
    table = pd.DataFrame(heads, columns=["layer", "head"])
    table["mine"] = [0.0 if layer == 2 else 1.0 for layer, _ in heads]
    table.to_csv(tmp_path / "heads.csv", index=False)
    arguments = ("prune", MODEL, "--method", "mine", "--table", tmp_path / "heads.csv", "--fraction", 0.125)
    done = headscape_here(monkeypatch, capsys, *arguments, "--dry-run", "--json", *ALONE)
    assert {layer for layer, _ in one_object(done)["heads"]} == {2}


def bad_material(folder):
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.txt").write_text("years of work")
    (folder / "file").write_text("")
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("A few words.")
    (folder / "long.txt").write_text(sample_text()[:20_000])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fraction", 0, "-o", "out"], "fraction must be more than 0 and less than 1, but is 0"),
        (["--fraction", 1, "-o", "out"], "less than 1, but is 1"),
        (["--fraction", 0.01, "-o", "out"], "0.01 of 16 heads is 0"),
        (["--heads", "9.0", "-o", "out"], "it has no (9, 0)"),
        (["--heads", "0.0,0.1,0.2,0.3", "-o", "out"], "all 4 of layer 0 are to go"),
        (["--heads", "0.1", "-o", "out"], "none of the heads asked for can go"),
        (["--heads", "first", "-o", "out"], "--heads must be heads as layer.head"),
        (["--heads", "0.0", "--fraction", 0.5, "-o", "out"], "either --fraction or --heads"),
        (["--target-kv", 0.5, "--max-loss", 0.1, "-o", "out"], "either --target-kv or --max-loss, not both"),
        (["--heads", "0.0", "--groups", "-o", "out"], "either --groups or --heads"),
        (["--target-kv", 1.5, "-o", "out"], "--target-kv must be more than 0 and less than 1, but is 1.5"),
        (["--max-loss", -1, "-o", "out"], "--max-loss must be a positive loss increase, but is -1"),
        (["--recover", -5, "-o", "out"], "--recover must be a whole number from 0"),
        (["--sizes", 99, "-o", "out"], "--sizes must be a whole number from 0 to 50"),
        (["--target-kv", 0.01, "-o", "out"], "the key-value cache cannot come down to 0.01"),
        (["--uniform", "--fraction", 0.1, "-o", "out"], "every layer loses the same, at least 8 at once"),
        (["--fraction", 0.5], "specify a folder for the pruned model with -o"),
        (["--fraction", 0.5, "-o", "file"], "file is a file"),
        (["--method", "nonsense", "-o", "out"], "'nonsense' was asked for"),
        (["--method", "haar,gradient", "-o", "out"], "--method must be one method"),
        (
            ["--text", "empty.txt", "-o", "out"],
            "empty.txt is empty",
        ),
        (
            ["--calibrate", "long.txt", "--evaluate", "short.txt", "-o", "out"],
            "the evaluation inputs cannot be",
        ),
        (
            ["--calibrate", "short.txt", "--evaluate", "long.txt", "-o", "out"],
            "the calibration inputs cannot",
        ),
        (["--calibrate", "long.txt", "-o", "out"], "--calibrate needs --evaluate"),
        (["--text", "none.txt", "-o", "out"], "none.txt"),
        (["--text", "long.txt", "--windows", 0, "-o", "out"], "--windows must be a whole number from 1"),
    ],
)
def test_bad_input_ends_in_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    bad_material(tmp_path)
    monkeypatch.chdir(tmp_path)
    one_line(headscape_here(monkeypatch, capsys, "prune", MODEL, *QUICK[:2], *arguments), words)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch, capsys):
    bad_material(tmp_path)
    done = headscape_here(monkeypatch, capsys, "prune", "no-such-model", "-o", tmp_path / "foreign")
    one_line(done, "holds something else (thesis.txt, ...)")
    assert (tmp_path / "foreign" / "thesis.txt").read_text() == "years of work"


def test_families_that_cannot_be_cut_are_told_that_gating_works(tmp_path, monkeypatch, capsys):
    tiny_causal_model("Olmo2", vocab_size=1024).save_pretrained(tmp_path / "olmo")
    shutil.copy(MODEL / "tokenizer.json", tmp_path / "olmo")
    shutil.copy(MODEL / "tokenizer_config.json", tmp_path / "olmo")
    done = headscape_here(monkeypatch, capsys, "prune", tmp_path / "olmo", "-o", tmp_path / "out", *QUICK)
    one_line(done, "cannot cut heads out of Olmo2Attention")
    assert "headscape ablate" in done.stderr
    ablated = headscape_here(
        *(monkeypatch, capsys, "ablate", tmp_path / "olmo", "-o", tmp_path / "ablation", *QUICK),
        *("--methods", "output-norm", "--counts", "2", "--figures", "none", "--json"),
    )
    assert one_object(ablated)["heads"] == 8


def test_a_second_run_to_the_same_folder_is_refused(tmp_path, monkeypatch, capsys):
    arguments = ("prune", MODEL, "--heads", "0.0,0.1", *ALONE, "-o", tmp_path / "out")
    with claimed(tmp_path / "out"):
        one_line(headscape_here(monkeypatch, capsys, *arguments), "another run is writing to")
        assert headscape_here(monkeypatch, capsys, *arguments, "--dry-run").returncode == 0
    assert headscape_here(monkeypatch, capsys, *arguments).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_pruned_model_is_replaced_only_by_the_command_that_wrote_it(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    first = ("prune", MODEL, "--heads", "0.0,0.1", *ALONE, "-o", out)
    assert headscape_here(monkeypatch, capsys, *first).returncode == 0
    second = ("prune", MODEL, "--heads", "1.0,1.1", *ALONE, "-o", out)
    one_line(headscape_here(monkeypatch, capsys, *second), "made with other options")
    assert hs.load_pruned(out).removed == ((0, 0), (0, 1))
    assert headscape_here(monkeypatch, capsys, *second, "--dry-run").returncode == 0
    assert headscape_here(monkeypatch, capsys, *first).returncode == 0
    assert hs.load_pruned(out).removed == ((0, 0), (0, 1))


@pytest.mark.parametrize("command", ["prune", "ablate", "capture", "organize", "check", "analyze"])
def test_a_failed_run_leaves_no_empty_folder(tmp_path, monkeypatch, capsys, command):
    bad_material(tmp_path)
    (tmp_path / "here").mkdir()
    out = tmp_path / "here" / "deep" / "out"
    arguments = (command, MODEL, "--text", tmp_path / "empty.txt", *QUICK[:2], "-o", out)
    one_line(headscape_here(monkeypatch, capsys, *arguments), "empty.txt is empty")
    assert list((tmp_path / "here").iterdir()) == []


def test_a_full_disk_ends_in_one_line(tmp_path, monkeypatch, capsys):
    def full(self, *arguments, **options):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    arguments = ("prune", MODEL, "--heads", "0.0,0.1", *ALONE, "-o", tmp_path / "out")
    one_line(headscape_here(monkeypatch, capsys, *arguments), "the disk is full while writing")
    # What was measured is kept, for the same command to go on with.
    assert [path.name for path in tmp_path.iterdir()] == [".work-out"]
    monkeypatch.undo()
    monkeypatch.setattr("headscape.pruning.trial_run.fitted", None)
    assert headscape_here(monkeypatch, capsys, *arguments).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_safetensors_cannot_write_is_told_in_one_line(tmp_path):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    arguments = ("prune", MODEL, "--heads", "0.0,0.1", *ALONE, "-o", tmp_path / "out")
    one_line(headscape(*arguments, preexec_fn=small_files), "could not be written: File too large")
    assert [path.name for path in tmp_path.iterdir()] == [".work-out"]
