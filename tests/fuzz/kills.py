"""Kills: a command is stopped at a random moment, run again, and must end with the results of an undisturbed run."""

import random
import shutil
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz.commands import LONG, finished_parts, results, words
from fuzz.program import started
from fuzz.workers import scratch
from headscape.errors import HeadscapeError

SIGNALS = {signal.SIGKILL: "kill -9", signal.SIGTERM: "SIGTERM"}
STOPPED = 130
PATIENCE = 300.0


@dataclass(frozen=True)
class Undisturbed:
    """What a command leaves when nothing stops it, and how many seconds it takes."""

    results: dict[str, str]
    seconds: float


def undisturbed(command: str, folder: Path) -> Undisturbed:
    """Run a command to its end."""
    out = folder / f"undisturbed-{command}"
    start = time.monotonic()
    process = started(words(command, out))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, f"{command}: {err}"
    return Undisturbed(results(command, out), time.monotonic() - start)


def kill_problem(command: str, number: signal.Signals, share: float, whole: Undisturbed, out: Path) -> str:
    """Stop a command after a share of its time, run it again; return what is wrong, or nothing."""
    process = started(words(command, out))
    time.sleep(share * whole.seconds)
    process.send_signal(number)
    said, err = process.communicate(timeout=PATIENCE)
    problem = _ending(number, process.returncode, said, err, done=_done(command, out, whole))
    before = finished_parts(out) if out.exists() else {}
    again = started(words(command, out))
    _, err = again.communicate(timeout=PATIENCE)
    if problem or again.returncode != 0:
        return problem or f"the rerun ended with {again.returncode}: {err.strip()[-300:]}"
    if not before.items() <= finished_parts(out).items():
        return "the rerun computed finished parts again"
    found = results(command, out)
    changed = sorted(
        name for name in {**found, **whole.results} if found.get(name) != whole.results.get(name)
    )
    rest = [path.name for path in out.parent.glob(f".*-{out.name}")]
    if rest:
        return f"left {rest[0]} beside its folder"
    return f"other results than undisturbed: {', '.join(changed[:3])}" if changed else ""


def _done(command: str, out: Path, whole: Undisturbed) -> bool:
    """Tell whether a command had nothing to do any more, or nothing done yet, when it was stopped."""
    if not out.exists():
        return True
    try:
        return results(command, out) == whole.results
    except (AssertionError, HeadscapeError, OSError):
        return False


def _ending(number: signal.Signals, code: int, said: str, err: str, done: bool) -> str:
    """Return what is wrong with how a stopped process ended."""
    if code == 0 or (code == -number and (number == signal.SIGKILL or done)):
        return ""  # while Python loads or leaves the program, a SIGTERM ends it without a word
    lines = err.strip().splitlines()
    if (
        number == signal.SIGKILL
        or code != STOPPED
        or said
        or len(lines) != 1
        or "interrupted" not in lines[0]
    ):
        return f"after {SIGNALS[number]}: exit code {code}, {said[-100:]!r} {err[-300:]!r}"
    return ""


def kill_trials(count: int, processes: int = 2, seed: int = 0) -> dict[str, str]:
    """Stop all long commands in turn, at ``count`` random moments; return what is wrong by case."""
    rng, commands = random.Random(seed), list(LONG)
    # Loading Python takes the first part of every run: nothing can be lost there.
    plan = [(commands[n % len(commands)], list(SIGNALS)[n % 2], rng.uniform(0.3, 1.0)) for n in range(count)]
    with (
        tempfile.TemporaryDirectory(dir=scratch(), prefix="headscape-kills-") as name,
        ThreadPoolExecutor(processes) as pool,
    ):
        folder = Path(name)
        needed = sorted({command for command, *_ in plan})
        whole = dict(zip(needed, pool.map(lambda command: undisturbed(command, folder), needed), strict=True))

        def one(case: int) -> tuple[str, str]:
            command, number, share = plan[case]
            out = folder / f"killed-{case}"
            try:
                problem = kill_problem(command, number, share, whole[command], out)
            except AssertionError as error:
                problem = str(error)
            shutil.rmtree(out, ignore_errors=True)
            return f"{case}: {command}, {SIGNALS[number]} after {share:.2f} of its time", problem

        return dict(pool.map(one, range(count)))
