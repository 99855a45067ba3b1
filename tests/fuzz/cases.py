"""One case: copy an artefact, damage it, read it within the limits, and judge what came of it."""

import random
import resource
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.arrays import ARRAYS
from fuzz.inputs import INPUTS
from fuzz.limits import BYTES, SECONDS, TimeIsUpError, listening, memory_limit, time_limit
from fuzz.models import MODELS
from fuzz.options import OPTIONS, bad_options
from fuzz.program import LATE, WARNING, headscape_apart, headscape_here, unclear
from fuzz.stores import STORES
from fuzz.target import Found, Target, not_finite, part_of, same
from headscape.errors import HeadscapeError

TARGETS = {target.name: target for target in (*STORES, *ARRAYS, *MODELS, *INPUTS)}
COUNTS = {**{name: target.cases for name, target in TARGETS.items()}, OPTIONS: 400}
LINE_EVERY, APART_EVERY = 8, 320
"""Every how many cases also go through the command line, and how many of those in a process of its own."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes
    ----------
    target, seed
        Name the case.
    mutation
        What was done.
    verdict
        "same" as without the mutation, "refused", "equal" to what others read from the files, "unfinished" (whole
        parts are missing, the others are right), or "failed".
    problem
        What is wrong; empty if nothing is.
    line
        Whether the command line was tried as well.
    spoiled
        Whether the process is not to be trusted with further cases: something in it hangs.
    """

    target: str
    seed: int
    mutation: str
    verdict: str
    problem: str = ""
    line: bool = False
    spoiled: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Reference:
    """What an artefact says unmutated: to the library, and to the command if there is one."""

    found: Found
    facts: Any = None


class Bench:
    """Builds each artefact once, and tries one case after the other on copies of it."""

    def __init__(self, folder: Path, seconds: float = SECONDS) -> None:
        self.folder, self.seconds = folder, seconds
        self._references: dict[str, Reference] = {}

    def run(self, name: str, seed: int) -> Outcome:
        """Run a case, and check that it took no more memory than it may."""
        start, before = time.perf_counter(), _peak()
        outcome = self._options(seed) if name == OPTIONS else self._mutated(TARGETS[name], seed)
        if (more := _peak() - before) > BYTES and not outcome.problem:
            outcome = replace(outcome, verdict="failed", problem=f"took {more >> 20} MB")
        spoiled = LATE in outcome.problem
        return replace(outcome, seconds=time.perf_counter() - start, spoiled=spoiled)

    def _mutated(self, target: Target, seed: int) -> Outcome:
        wanted, root = self._reference(target), self._copy(target)
        with listening():
            mutation = target.mutate(random.Random(f"{target.name} {seed}"), root)
        line = target.command is not None and seed % LINE_EVERY == 0
        verdict, problem = self._judged(target, root, wanted.found)
        if line and not problem:
            problem = self._line_problem(
                target, root, verdict, wanted, apart=seed % APART_EVERY == LINE_EVERY
            )
        self._clear()
        return Outcome(target.name, seed, mutation, "failed" if problem else verdict, problem, line)

    def _options(self, seed: int) -> Outcome:
        """Give the program an option that it must refuse."""
        for name in ("npy", "capture"):
            self._reference(TARGETS[name])
        self._clear()
        words = bad_options(random.Random(f"{OPTIONS} {seed}"), self.folder)
        ended = headscape_here(words, self.seconds)
        usage = ended.code == 2 and "Usage:" in ended.err and not (ended.out or ended.problem)
        problem = "" if usage else ended.line_problem
        text = " ".join(map(repr, map(str, words))).replace(str(self.folder), "")
        return Outcome(OPTIONS, seed, text, "failed" if problem else "refused", problem, line=True)

    def _reference(self, target: Target) -> Reference:
        """Build an artefact if need be, and return what it says."""
        if target.name not in self._references:
            place = self.folder / target.name
            place.mkdir(parents=True)
            with listening():
                target.build(place)
            found, facts = target.read(self._copy(target)), None
            assert same(target.read(self._copy(target)), found), f"{target.name} does not read the same twice"
            if target.command is not None:
                facts = headscape_here(self._words(target, self._copy(target))).facts
            self._references[target.name] = Reference(found, facts)
        return self._references[target.name]

    def _words(self, target: Target, root: Path) -> list[Any]:
        assert target.command is not None
        return [*target.command(root, self.folder / "out"), "--json"]

    def _copy(self, target: Target) -> Path:
        self._clear()
        return Path(shutil.copytree(self.folder / target.name, self.folder / "case"))

    def _clear(self) -> None:
        for name in ("case", "out"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "case-outside").unlink(missing_ok=True)

    def _judged(self, target: Target, root: Path, wanted: Found) -> tuple[str, str]:
        """Return the verdict on what the library reads, and what is wrong with it."""
        found, refusal, problem = None, "", ""
        with listening() as said, memory_limit():
            try:
                with time_limit(self.seconds):
                    found = target.read(root)
            except HeadscapeError as error:
                refusal = str(error) or "(no words)"
            except TimeIsUpError:
                problem = f"{LATE} {self.seconds:.0f} s"
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error)[:300]}"
        spoken = [*said.warnings, *(said.out + said.err).splitlines()]
        spoken = [line for line in spoken if not line.startswith(WARNING)]
        if not problem and spoken:
            problem = f"spoke: {spoken[0][:300]} (and {len(spoken) - 1} lines more)"
        if problem or found is None:
            return "refused", problem or unclear(refusal)
        if same(found, wanted):
            return "same", ""
        if target.unfinished and part_of(found, wanted):
            return "unfinished", ""
        return "equal", self._difference(target, root, found)

    def _difference(self, target: Target, root: Path, found: Found) -> str:
        """Return what is wrong with a result that is not the unmutated one; nothing if the files mean it to others."""
        if target.meanings is None:
            return "accepted, with another result"
        if bad := not_finite(found):
            return f"accepted, with numbers that are not finite ({', '.join(bad[:3])})"
        try:
            with listening(), memory_limit(), time_limit(self.seconds):
                meanings = target.meanings(root)
        except Exception as error:
            return f"accepted, but others refuse it ({type(error).__name__}: {str(error)[:200]})"
        right = any(same(found, meaning, target.tolerance or 1e-12) for meaning in meanings)
        return "" if right else "accepted, with another result than others read"

    def _line_problem(self, target: Target, root: Path, verdict: str, wanted: Reference, apart: bool) -> str:
        """Return what is wrong with what the command line makes of the same folder."""
        ended = (headscape_apart if apart else headscape_here)(self._words(target, root), self.seconds)
        if ended.problem or ended.code not in (0, 1):
            return ended.line_problem
        if other := [line for line in ended.err.splitlines() if not line.startswith(WARNING)]:
            return f"exit code {ended.code}, but said: {' '.join(other)[:200]}"
        if verdict != "equal" and ended.facts != wanted.facts:
            return f"the command gave another result, with exit code {ended.code}; the library: {verdict}"
        return ""


def _peak() -> int:
    """Return the largest amount of memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
