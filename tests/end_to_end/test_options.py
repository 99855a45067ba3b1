"""Every option of every command: nonsense is refused in one line before anything is loaded, and none is ignored."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("transformers")

from cli_runs import headscape_here, one_line
from studies import small_capture, small_study

MODEL = Path(__file__).parents[2] / "examples" / "tiny_model"
ANALYSES = ("analyze", "patterns", "entropy", "energy", "softmax")
OF_MODELS = ("capture", "ablate", "prune")
HUGE = "1" + 20 * "0"


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    small_capture(windows=2).save(folder / "capture")
    small_study(windows=1, stages=["entropy"], out=folder / "study")
    np.save(folder / "t.npy", np.random.default_rng(0).random((8, 8, 4)))
    (folder / "text.txt").write_text("some words " * 400)
    (folder / "heads.csv").write_text("layer,head,mine\n0,0,1\n")
    Image.new("RGB", (4, 4)).save(folder / "a.png")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def refused(material, tmp_path, monkeypatch, capsys):
    """Run a command that must end in one line, with the sources of the material, and load nothing."""

    def never(*arguments, **options):
        raise AssertionError("something was opened")

    def run(words, message, loads=False):
        monkeypatch.chdir(material)
        if not loads:
            monkeypatch.setattr("headscape.study.source.open_source", never)
        command, source, *options = words
        place = [] if command == "check" or "-o" in options else ["-o", tmp_path / "out"]
        source = MODEL if source == "model" else source
        one_line(headscape_here(monkeypatch, capsys, command, source, *place, *options), message)
        assert loads or not (tmp_path / "out").exists()

    return run


@pytest.mark.parametrize("command", [*ANALYSES, *OF_MODELS, "organize", "check"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length", "0"], "--length must be a whole number from 1 to 1000000, but is 0"),
        (["--length", HUGE], "--length must be a whole number from 1 to 1000000"),
        (["--seed", "-1"], "--seed must be a whole number from 0"),
        (["--seed", HUGE], "--seed must be a whole number from 0"),
        (["--dtype", "x,,y"], "--dtype must be one of float32"),
        (["--device", ""], "--device must be a device"),
        (["--device", "toaster"], "--device must be a device"),
        (["--revision", "main"], "--revision is a branch, tag or commit of a Hugging Face name"),
        (["--text", "nowhere"], "nowhere does not exist"),
        (["--text", ""], "--text must be a file"),
        (["--text", "pipe"], "not a regular file"),
        (["--text", "9" * 5000], "File name too long"),
        (["--images", ""], "--images"),
        (["--images", "pipe"], "not a regular file"),
        (["--images", "a.png", "--length", "16"], "--length is for texts"),
        (["--images", "a.png", "--sample", "first"], "--sample is for texts"),
        (["--text", "text.txt", "--images", "a.png"], "either --text or --images"),
    ],
)
def test_inputs_and_loading(refused, command, options, message):
    refused([command, "model", *options], message)


@pytest.mark.parametrize("command", [*ANALYSES, *OF_MODELS])
@pytest.mark.parametrize("value", ["0", "-3", HUGE])
def test_windows(refused, command, value):
    refused([command, "model", "--windows", value], "--windows must be a whole number from 1 to 100000")


@pytest.mark.parametrize("source", ["capture", "study", "t.npy", "synthetic"])
@pytest.mark.parametrize("command", [*ANALYSES, "organize", "check"])
@pytest.mark.parametrize(
    "option",
    [
        *(("--text", "text.txt"), ("--images", "a.png"), ("--length", "16"), ("--sample", "first")),
        *(("--dtype", "float32"), ("--device", "cpu"), ("--trust-remote-code",)),
    ],
)
def test_options_of_models_are_for_models(refused, command, source, option):
    refused([command, source, *option], f"{option[0]} is for models")


@pytest.mark.parametrize("command", OF_MODELS)
@pytest.mark.parametrize("source", ["capture", "study", "t.npy"])
def test_commands_that_run_the_model(refused, command, source):
    refused([command, source], "which holds no weights")


@pytest.mark.parametrize("command", ["analyze", "patterns", "entropy", "softmax", "organize", "check"])
@pytest.mark.parametrize(
    ("source", "option", "message"),
    [
        *(
            (source, ("--array", "x"), "--array is for tensor files")
            for source in ("model", "capture", "study")
        ),
        ("capture", ("--axes", "head,query,key"), "--axes is for tensor files"),
        ("t.npy", ("--field", "../../x"), "field must be probs, logits, energy"),
        ("t.npy", ("--field", ""), "--field must not be empty"),
        ("t.npy", ("--axes", ""), "--axes must not be empty"),
        ("synthetic", ("--field", "probs"), "knows its field"),
        ("model", ("--field", "values"), "--field must be one of probs"),
    ],
)
def test_options_of_tensors(refused, command, source, option, message):
    refused([command, source, *option], message)


@pytest.mark.parametrize("command", ANALYSES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threads", "0"], "--threads must be a whole number from 1 to 1024"),
        (["--threads", HUGE], "--threads must be a whole number from 1 to 1024"),
        (["--stack", ""], "--stack must not be empty"),
        (["--layers", "0-" + HUGE], "--layers must be numbers"),
        (["--layers", "²"], "--layers must be numbers"),
        (["--layers", ""], "--layers must be numbers"),
        (["--heads", "0." + "9" * 5000], "--heads must be heads"),
        (["--figures", ""], "figure formats"),
        (["--figures", "none", "--head", "0.0"], "specify --figures too"),
        (["--json", "--csv"], "specify one of them"),
    ],
)
def test_shared_options_of_analyses(refused, command, options, message):
    refused([command, "model", *options], message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["analyze", "--set", "k=abc"], "k must be a whole number from 1 up, or a share"),
        (["analyze", "--set", "k=0"], "k must be a whole number from 1 up, or a share"),
        (["analyze", "--set", f"k={HUGE}"], "k must be a number from 0 to 1e+09"),
        (["analyze", "--set", "p=-1"], "p must be a number from 0.01 to 16"),
        (["analyze", "--set", "p=nan"], "p must be a number from 0.01 to 16"),
        (["analyze", "--set", "fields=words"], "fields must be probs or logits or energy"),
        (["analyze", "--set", "lengths=-3"], "lengths must be a whole number from 2"),
        (["analyze", "--set", "lengths=64,x"], "lengths must be a whole number from 2"),
        (["analyze", "--set", "signatures=maybe"], "signatures must be True or False"),
        (["analyze", "--set", "alpha=x"], "alpha must be a number from -16 to 16"),
        (["analyze", "--set", "tree=oak"], "tree must be 'flexible', 'binary' or 'linkage'"),
        (["analyze", "--set", "tree=3"], "tree must be 'flexible', 'binary'"),
        (["analyze", "--set", "init="], "init must be one of"),
        (["analyze", "--set", f"n_iter={HUGE}"], "n_iter must be a whole number from 1 to 1000"),
        (["analyze", "--set", f"n_eigs={HUGE}"], "n_eigs must be a whole number from 2 to 10000"),
        (["analyze", "--set", "n_iter=2", "--n-iter", "3"], "specify n_iter once"),
        (["analyze", "--set", "k=2", "--set", "k=3"], "--set gives k twice"),
        (["analyze", "--stages", "+softmax", "--set", "draws=0"], "draws must be a whole number from 1"),
        (["analyze", "--stages", "+softmax", "--set", "masked=no"], "masked must be fill or block"),
        (["analyze", "--stages", "+ablation", "--set", "methods=guess"], "'guess' was asked for"),
        (["analyze", "--stages", "energy", "--set", "k=3"], "option of the stage 'entropy', which was not"),
        (["analyze", "--stages", "energy", "--n-iter", "3"], "option of the stage 'geometry', which was not"),
        (["analyze", "--stages", "energy", "--field", "logits"], "no stage that was asked for organizes"),
        (["analyze", "--stages", ""], "stages are geometry"),
        (["analyze", "--quick", "--windows", "2", "--length", "8"], "--quick chooses windows and length"),
        (["entropy", "--fields", ""], "fields must be probs or logits or energy"),
        (["entropy", "--k", "nan"], "k must be a whole number from 1 up, or a share"),
        (["entropy", "--n-iter", HUGE], "n_iter must be a whole number from 1 to 1000"),
        (["softmax", "--n-iter", HUGE], "softmax_n_iter must be a whole number from 1 to 1000"),
        (["softmax", "--draws", HUGE], "draws must be a whole number from 1 to 10000"),
        (["softmax", "--causal"], "knows which keys are visible"),
        (["softmax", "--field", "logits"], "no stage that was asked for organizes"),
        (["energy", "--lengths", "1"], "lengths must be a whole number from 2"),
        (["energy", "--lengths", "2-" + HUGE], "--lengths must be numbers"),
        (["energy", "--beside", "study", "--figures", "none"], "--beside draws a figure"),
        (["organize", "--window", "-1"], "--window must be a whole number from 0"),
        (["organize", "--window", HUGE], "--window must be a whole number from 0 to 100000"),
        (["organize", "--n-iter", HUGE], "n_iter must be a whole number from 1 to 1000"),
        (["organize", "--n-eigs", "1"], "n_eigs must be a whole number from 2"),
        (["organize", "--max-memory", "inf"], "--max-memory must be a number from 1"),
        (["organize", "--max-memory", "-1"], "--max-memory must be a number from 1"),
        (["organize", "--eps-scale", "0"], "eps_scale must be a number"),
        (["organize", "--tree-constant", "nan"], "tree_constant must be a number"),
        (["organize", "--alpha", "1e300"], "alpha must be a number from -16 to 16"),
        (["organize", "-o", ""], "-o must name a folder"),
        (["check", "--tolerance", "0.1"], "specify --against"),
        (["check", "--against-dtype", "float16"], "specify --against"),
        (["check", "--against", ""], "--against must be a model"),
        (["check", "--against", "capture"], "--against must be a model"),
        (["check", "--against", "minilm", "--tolerance", "-1"], "--tolerance must be a number"),
        (["check", "--against", "minilm", "--against-dtype", "x"], "--against-dtype must be one of"),
        (["check", "--windows", HUGE], "--windows must be a whole number"),
        (["check", "--field", "probs"], "--field says what a tensor file holds"),
        (["ablate", "--table", "heads.csv"], "--table heads.csv is not used"),
        (["ablate", "--table", "/proc/x/y"], "does not exist"),
        (["ablate", "--methods", ""], "'' was asked for"),
        (["ablate", "--methods", "haar", "--draws", "5"], "add random to --methods"),
        (["ablate", "--draws", HUGE], "--draws must be a whole number from 2 to 10000"),
        (["ablate", "--counts", "0"], "--counts must be numbers or shares"),
        (["ablate", "--counts", HUGE], "--counts must be numbers or shares"),
        (["ablate", "--counts", "101%"], "--counts must be numbers or shares"),
        (["ablate", "--calibration-windows", "0"], "--calibration-windows must be a whole number from 1"),
        (["ablate", "--calibrate", "text.txt"], "--calibrate needs --evaluate"),
        (["ablate", "--evaluate", "pipe"], "not a regular file"),
        (["prune", "--fraction", "nan"], "--fraction must be more than 0 and less than 1"),
        (["prune", "--fraction", "2", "--dry-run"], "--fraction must be more than 0 and less than 1"),
        (["prune", "--method", ""], "'' was asked for"),
        (["prune", "--method", "guess"], "'guess' was asked for"),
        (["prune", "--heads", "0.0", "--method", "haar"], "either --method or --heads"),
        (["prune", "--heads", "0.0", "--table", "heads.csv"], "either --table or --heads"),
        (["prune", "--heads", "0.0", "--manifest", ""], "--manifest takes a folder"),
        (["prune", "--heads", "0.0", "-o", ""], "specify a folder"),
    ],
)
def test_options_of_single_commands(refused, words, message):
    command, *options = words
    refused([command, "model", *options], message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "capture", "--windows", "1"], "--windows is for models"),
        (["check", "t.npy", "--against", "minilm"], "--against is for models"),
        (["entropy", "t.npy", "--fields", "logits"], "is a tensor of one field"),
        (
            ["entropy", "t.npy", "capture"],
            "several sources must be tensors, one per window, but capture is not",
        ),
        (
            ["energy", "t.npy", "text.txt"],
            "several sources must be tensors, one per window, but text.txt is not",
        ),
    ],
)
def test_options_that_do_not_fit_the_source(refused, words, message):
    refused(words, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["analyze", "capture", "--windows", "3"], "expected 3 windows, but the source has only 2"),
        (["analyze", "capture", "--stack", "cross"], "stack must be one of self"),
        (["analyze", "model", "--stack", "cross"], "stack must be one of self"),
        (["analyze", "model", "--head", "9.9", "--figures", "png"], "--head must be one of the heads"),
        (["energy", "capture", "--head", "0.0", "--layers", "1"], "--head must be one of the heads"),
        (["organize", "capture", "--window", "2"], "window must be"),
        (["organize", "t.npy", "--window", "1"], "window must be from 0 to 0"),
        (["organize", "t.npy", "--array", "x"], "leave out array='x'"),
    ],
)
def test_what_only_the_source_knows_is_checked_before_anything_is_computed(
    refused, words, message, monkeypatch
):
    for name in ("headscape.study.analyze.capture_windows", "headscape.geometry.organization.organize"):
        monkeypatch.setattr(name, None)
    refused(words, message, loads=True)
