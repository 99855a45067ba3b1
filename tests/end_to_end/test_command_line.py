"""The program as a user starts it."""

import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest

import headscape as hs
from cli_runs import environment, headscape, one_line, without_progress


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return headscape("organize", "synthetic", "-o", out), out


def test_version_and_help():
    assert headscape("--version").stdout.strip() == f"headscape {hs.__version__}"
    shown = headscape("--help")
    assert shown.returncode == 0
    for command in ("organize", "info"):
        assert command in shown.stdout
        assert "Example:" in headscape(command, "--help").stdout


def test_info():
    facts = json.loads(headscape("info", "--json").stdout)
    assert facts["headscape"] == hs.__version__
    assert facts["core"]["numpy"] == np.__version__
    assert {"models", "report", "compare", "dask"} == set(facts["extras"])
    assert "cache" in headscape("info").stdout


def test_info_lists_model_families():
    table = json.loads(headscape("info", "--models", "--json").stdout)
    assert {"GPTJ", "Llama", "Swin", "Transformer-XL (ours)"} <= {row[0] for row in table["rows"]}
    lines = headscape("info", "--models").stdout.splitlines()
    assert next(line.split() for line in lines if line.startswith("GPTJ")) == [
        *("GPTJ", "text", "observe", "gate", "softmax", "reader"),
    ]
    assert max(map(len, lines)) <= 80


def test_demo_leaves_results_and_pictures(demo):
    done, out = demo
    assert done.returncode == 0, done.stderr
    assert without_progress(done.stderr) == ""
    assert "Figures:" in done.stdout
    for name in (
        "affinity_head",
        "tree_head",
        "diffusion_map_head_2d",
        "diffusion_map_head_3d",
        "matrix_before_after",
    ):
        assert (out / "figures" / f"{name}.png").stat().st_size > 10_000
    summary = json.loads((out / "summary.json").read_text())
    stored = hs.Organization.load(out / "organization")
    for axis in ("query", "key", "head"):
        assert summary["axes"][axis]["order"] == stored.order[axis].tolist()
        assert (out / f"tree_{axis}.nwk").read_text().endswith(";\n")
    assert stored.heads[-1] == (5, 7)


def test_the_same_command_again_is_fine_and_another_one_is_refused(demo):
    _, out = demo
    assert headscape("organize", "synthetic", "-o", out, "--figures", "none").returncode == 0
    other = headscape("organize", "synthetic", "-o", out, "--alpha", 1, "--figures", "none")
    one_line(
        other,
        f"{out} was made with --alpha 0.0, but this run is with --alpha 1.0. Choose another folder with -o",
    )


def test_organize_leaves_folders_with_other_files_alone(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "summary.json").write_text('{"of": "something else"}')
    refused = headscape("organize", "synthetic", "-o", mine, "--figures", "none")
    one_line(refused, f"{mine} holds other files (summary.json): choose a new or an empty folder with -o.")
    assert [path.name for path in mine.iterdir()] == ["summary.json"]
    one_line(
        headscape("organize", "synthetic", "--figures", "none"), "specify a folder for the results with --out"
    )


def test_json_is_one_object_and_quiet_is_silent(tmp_path):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).random((9, 8)))
    done = headscape("organize", tmp_path / "m.npy", "-o", tmp_path / "a", "--json", "--figures", "svg,pdf")
    summary = json.loads(done.stdout)
    assert set(summary["axes"]) == {"query", "key"}
    assert (summary["parameters"]["alpha"], summary["parameters"]["beta"]) == (1.0, 0.0)
    assert all(os.path.exists(path) for path in summary["figures"])
    quiet = headscape("organize", tmp_path / "m.npy", "-o", tmp_path / "b", "--quiet", "--figures", "none")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def bad_tensors(tmp_path):
    x = np.random.default_rng(0).random((5, 6, 4))
    np.save(tmp_path / "good.npy", x)
    np.save(tmp_path / "nan.npy", np.where(x > 0.9, np.nan, x))
    np.save(tmp_path / "vector.npy", x[0, 0])
    np.save(tmp_path / "stacked.npy", x[None])
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:200])
    (tmp_path / "file").write_text("")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nan.npy", "-o", "out"], "must be finite"),
        (["vector.npy", "-o", "out"], "must have 2 or 3 axes"),
        (["stacked.npy", "-o", "out"], "layer,head,query,key"),
        (["cut.npy", "-o", "out"], "damaged, truncated"),
        (["none.npy", "-o", "out"], "does not exist"),
        (["good.npy", "-o", "file"], "output folder file cannot be created"),
        (["good.npy", "-o", "out", "--n-iter", "0"], "n_iter must be a whole number from 1 to 1000"),
        (["good.npy", "-o", "out", "--figures", "bmp"], "figure formats are png, svg, pdf"),
        (["good.npy", "-o", "out", "--threads", "0"], "--threads must be a whole number from 1 to 1024"),
        (["good.npy"], "--out"),
        (["good.npy", "-o", "out", "--tree", "oak"], "oak"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path, args, words):
    bad_tensors(tmp_path)
    done = headscape("organize", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_internal_errors_show_no_traceback_unless_asked(tmp_path):
    code = "import headscape.cli.main as m\ndef broken(**_): raise KeyError('x')\nm.app = broken\nm.run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 70
    assert done.stderr.startswith("headscape: internal error: KeyError")
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "HEADSCAPE_DEBUG": "1"},
    )
    assert "Traceback" in shown.stderr


def test_progress_is_shown_on_terminals(tmp_path):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from headscape.cli.main import run; run()",
            "organize",
            "synthetic",
            "-o",
            tmp_path / "o",
        ],
        stdout=subprocess.DEVNULL,
        stderr=child,
    )
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    assert process.wait() == 0
    assert re.search(rb"iteration \d/3", shown)


def test_warnings_of_other_libraries_are_not_shown(tmp_path):
    code = """
import warnings
import numpy as np
import headscape.study.source as place
def noisy(*arguments, **options):
    np.float64(1e308) * 10
    warnings.warn("from a library")
    raise place.InputError("what is wrong")
place.open_source = noisy
from headscape.cli.main import run
run()
"""
    command = [sys.executable, "-c", code, "organize", "synthetic", "-o", "out"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "headscape: what is wrong\n")


def test_warnings_of_the_library_are_a_line_each_unless_quiet(tmp_path):
    import zarr

    array = zarr.create_array(tmp_path / "x.zarr", shape=(8, 8, 4), chunks=(8, 8, 1), dtype="f4")
    array[:, :, :3] = np.random.default_rng(0).random((8, 8, 3))
    command = ("organize", tmp_path / "x.zarr", "-o", tmp_path / "out", "--figures", "none")
    loud, quiet = headscape(*command), headscape(*command, "--quiet")
    assert loud.returncode == quiet.returncode == 0
    assert "Warning: " in loud.stderr
    assert "1 of 4 chunks are absent" in loud.stderr
    assert quiet.stderr == quiet.stdout == ""
