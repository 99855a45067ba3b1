"""How much faster this tree is than another one of the same project: ``python -m benchmarks.speedup --against DIR``.

``DIR`` holds a checkout of another commit (``git worktree add DIR COMMIT``). Both sides run in processes of their own,
in turn. Elapsed time is what counts; processor time, which a busy machine changes less, is shown beside it.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

OWN = Path(__file__).resolve().parents[1]
CASES = {
    "causal": ("questionnaire, 256 x 256 x 270, causal", (256, 256, 30, 9), True, ">= 2x"),
    "full": ("questionnaire, 256 x 256 x 128, no mask", (256, 256, 16, 8), False, ">= 1.5x"),
}
REPEATS = 5
COMMAND = "from headscape.cli.main import run; run()"
LOADING = (
    "import time, torch; start = time.perf_counter(); import headscape as hs; hs.load_model('default'); "
    "print(time.perf_counter() - start)"
)


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of a process that has a tree imported, compiled as an installed package is."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | {"PYTHONPATH": str(tree / "src")}


class Side:
    """A process that has one of the two trees imported and runs what it is told."""

    def __init__(self, tree: Path) -> None:
        self.environment = environment(tree)
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, **order: Any) -> dict[str, Any]:
        """Send an order, and return what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        if not answer:
            raise SystemExit(f"the process of {self.environment['PYTHONPATH']} stopped.")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """Run orders from standard input: the questionnaire on a tensor, timed; EMDs are saved if a path is given."""
    import numpy as np

    from headscape.geometry.questionnaire import Questionnaire
    from headscape.tensor.synthetic import planted_tensor

    tensors: dict[str, Any] = {}
    for line in sys.stdin:
        order = json.loads(line)
        key = json.dumps([order["shape"], order["causal"], order["dtype"]])
        if key not in tensors:
            x = planted_tensor(*order["shape"], noise=0.5).data.astype(order["dtype"])
            tensors[key] = causal(x) if order["causal"] else x
        wall, cpu = time.perf_counter(), time.process_time()
        found = Questionnaire(n_iter=3).fit(tensors[key])
        answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        if order.get("save"):
            np.savez(order["save"], **found.emd_)
        print(json.dumps(answer), flush=True)


def causal(x: Any) -> Any:
    """Return a (query, key, head) tensor as causal attention: later keys zero, rows that sum to 1."""
    import numpy as np

    hidden = np.abs(x) * np.tri(x.shape[0], x.shape[1], dtype=x.dtype)[:, :, None]
    return hidden / np.maximum(hidden.sum(axis=1, keepdims=True), np.finfo(x.dtype).tiny)


def questionnaires(other: Path, repeats: int) -> None:
    """Print the ratios of the questionnaires, and how far results differ in float64."""
    sides = [Side(OWN), Side(other)]
    try:
        for name, shape, mask, wanted in CASES.values():
            order = {"shape": shape, "causal": mask, "dtype": "float32"}
            for side in sides:
                side.run(**order)  # compiles
            runs = [[side.run(**order) for side in sides] for _ in range(repeats)]
            show(name, runs, wanted)
        with tempfile.TemporaryDirectory() as folder:
            for mask in (True, False):
                paths = [f"{folder}/{number}.npz" for number in range(2)]
                for side, path in zip(sides, paths, strict=True):
                    side.run(shape=(96, 96, 8, 8), causal=mask, dtype="float64", save=path)
                print(
                    f"  largest relative difference of EMDs, float64, causal={mask}: {difference(*paths):.1e}"
                )
    finally:
        for side in sides:
            side.close()


def difference(first: str, second: str) -> float:
    """Return the largest difference of two sets of EMDs, relative to the largest EMD."""
    import numpy as np

    a, b = np.load(first), np.load(second)
    return max(float(np.abs(a[axis] - b[axis]).max() / b[axis].max()) for axis in b.files)


def analyses(other: Path, repeats: int, arguments: list[str]) -> None:
    """Print the ratio of whole analyses of the default model from the command line, weights converted before."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats + 1):
            pair = []
            for place, tree in enumerate((OWN, other)):
                out = f"{folder}/{place}-{number}"
                command = ["-c", COMMAND, "analyze", "default", "-o", out, *arguments]
                pair.append(timed(command, tree))
            if number:  # the first pair compiles kernels and converts weights
                runs.append(pair)
    show("headscape analyze default", runs, ">= 2x")


def timed(command: list[str], tree: Path) -> dict[str, float]:
    """Run Python with one of the trees, and return elapsed and processor time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], env=environment(tree), check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu}


def show(name: str, runs: list[list[dict[str, float]]], wanted: str) -> None:
    """Print median times and the median and range of the ratio, elapsed and of the processor."""
    for kind, words in (("wall", "elapsed"), ("cpu", "processor")):
        mine, theirs = ([pair[place][kind] for pair in runs] for place in (0, 1))
        ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
        print(
            f"{name:44} {words:9} {statistics.median(mine):7.2f} s  other {statistics.median(theirs):7.2f} s  "
            f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})  wanted {wanted}",
            flush=True,
        )


def loading(repeats: int) -> None:
    """Print how long the default model takes to load beyond importing torch, in new processes."""
    seconds = []
    for _ in range(repeats + 1):
        found = subprocess.run(
            [sys.executable, "-c", LOADING],
            env=environment(OWN),
            check=True,
            capture_output=True,
            text=True,
        )
        seconds.append(float(found.stdout.split()[-1]))
    print(
        f"load the default model, beyond importing torch: {statistics.median(seconds[1:]):.2f} s  wanted <= 3 s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speedup", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help="questionnaire, analyze, load; all by default")
    parser.add_argument("--against", type=Path, help="checkout of the commit to compare with")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--windows", help="windows of the analysis; by default those of the command")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    parts = options.parts or ["questionnaire", "analyze", "load"]
    if unknown := set(parts) - {"questionnaire", "analyze", "load"}:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    if options.against is None or not (options.against / "src" / "headscape").is_dir():
        parser.error("--against must be a checkout of headscape (git worktree add DIR COMMIT)")
    other = options.against.resolve()
    if "questionnaire" in parts:
        questionnaires(other, options.repeats)
    if "analyze" in parts:
        analyses(other, options.repeats, ["--windows", options.windows] if options.windows else [])
    if "load" in parts:
        loading(options.repeats)


if __name__ == "__main__":
    main()
