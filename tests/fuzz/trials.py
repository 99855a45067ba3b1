"""The command ``python -m tests.fuzz``: runs the trials and sums them up."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fuzz.cases import COUNTS, Bench, Outcome
from fuzz.limits import SECONDS
from fuzz.workers import outcomes, scratch

TRIALS = ("mutations", "kills", "disks")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that were asked for; return 1 if something failed."""
    given = _parser().parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if given.seed is not None:
        return _replay(given.only[0], given.seed, given.seconds)
    start, passed, failed = time.monotonic(), 0, 0
    for trial in given.trial or TRIALS:
        done, bad = {"mutations": _mutations, "kills": _kills, "disks": _disks}[trial](given)
        passed, failed = passed + done - bad, failed + bad
    print(f"{(time.monotonic() - start) / 60:.1f} minutes")
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--trial", action="append", choices=TRIALS, help="only this trial; repeatable")
    parser.add_argument(
        "--only", action="append", choices=sorted(COUNTS), metavar="TARGET", help="only this target"
    )
    parser.add_argument("--seed", type=int, help="replay one case of the target that --only names")
    parser.add_argument("--share", type=float, default=1.0, help="run this share of all cases")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="limit of a case (default: %(default)s)"
    )
    parser.add_argument("--show", type=int, default=10, help="how many failures to show per target")
    return parser


def _replay(name: str, seed: int, seconds: float) -> int:
    """Run one case, and say everything about it."""
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="headscape-fuzz-") as folder:
        outcome = Bench(Path(folder), seconds).run(name, seed)
    print(f"{outcome.target} {outcome.seed}: {outcome.mutation}\n{outcome.verdict} {outcome.problem}")
    return int(outcome.verdict == "failed")


def _mutations(given: argparse.Namespace) -> tuple[int, int]:
    """Run the mutations of all targets; return how many ran and how many failed."""
    names = given.only or list(COUNTS)
    cases = [(name, seed) for name in names for seed in range(max(1, round(COUNTS[name] * given.share)))]
    # Mixed, so that all processes have the same share of the slow ones.
    random.Random(0).shuffle(cases)
    found: list[Outcome] = []
    for outcome in outcomes(cases, given.processes, given.seconds):
        found.append(outcome)
        if len(found) % 500 == 0:
            print(f"  {len(found)} of {len(cases)} mutations", file=sys.stderr, flush=True)
    for name in names:
        _show(name, [outcome for outcome in found if outcome.target == name], given.show)
    lines = sum(outcome.line for outcome in found)
    print(f"{len(found)} mutations, {lines} of them through the command line as well")
    return len(found), sum(outcome.verdict == "failed" for outcome in found)


def _show(name: str, found: list[Outcome], most: int) -> None:
    """Print the counts of one target and its first failures, each with the way to replay it."""
    counts = Counter(outcome.verdict for outcome in found)
    words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    spent = [outcome.seconds for outcome in found]
    print(
        f"{name:20} {len(found):5}: {words}; {sum(spent) / len(spent):.3f} s each, at most {max(spent):.1f} s"
    )
    failures = sorted((o for o in found if o.verdict == "failed"), key=lambda o: (o.problem, o.seed))
    for outcome in failures[:: max(1, len(failures) // most)][:most]:
        print(
            f"    --only {name!r} --seed {outcome.seed}: {outcome.mutation[:120]}\n        {outcome.problem[:300]}"
        )


def _kills(given: argparse.Namespace) -> tuple[int, int]:
    from fuzz.kills import kill_trials

    return _told("kill", kill_trials(max(1, round(50 * given.share)), given.processes))


def _disks(given: argparse.Namespace) -> tuple[int, int]:
    from fuzz.full_disk import disk_trials

    return _told("full disk", disk_trials(max(1, round(20 * given.share))))


def _told(name: str, problems: dict[str, str]) -> tuple[int, int]:
    """Print what failed of a trial; ``problems`` has an entry per case, empty if it passed."""
    failed = {case: problem for case, problem in problems.items() if problem}
    print(f"{name:20} {len(problems):5}: {len(problems) - len(failed)} passed, {len(failed)} failed")
    for case, problem in failed.items():
        print(f"    {case}\n        {problem}")
    return len(problems), len(failed)
