"""Named states in which a comparison says little."""

from collections.abc import Iterator, Sequence

from headscape.notices import Notice
from headscape.output import counted
from headscape.study.compared_pair import ComparedPair
from headscape.study.compared_source import ComparedSource
from headscape.study.pair_words import PairWords

SINGLE_WINDOW = "single-window"
FEW_WINDOWS = "few-windows"
NO_NOISE_FLOOR = "no-noise-floor"
TRANSPORT_NOT_SETTLED = "transport-not-settled"


def comparison_notices(
    sources: Sequence[ComparedSource], pairs: Sequence[ComparedPair]
) -> tuple[Notice, ...]:
    """Return the named states in which a comparison says little, each once."""
    found = [*_of_sources(sources), *(n for pair in pairs for n in _of_pair(sources, pair))]
    return tuple(dict.fromkeys(found))


def _of_sources(sources: Sequence[ComparedSource]) -> Iterator[Notice]:
    without = [f"{s.name} ({counted(s.windows, 'window')})" for s in sources if not len(s.noise)]
    if without and len(without) == len(sources):
        yield Notice(
            NO_NOISE_FLOOR,
            f"the distance between networks has no noise to stand beside: {', '.join(without)}, and halves of 4 are "
            "needed. Take 6 windows or more.",
        )


def _of_pair(sources: Sequence[ComparedSource], pair: ComparedPair) -> Iterator[Notice]:
    a, b = sources[pair.a], sources[pair.b]
    if not pair.test:
        yield Notice(
            SINGLE_WINDOW,
            f"{a.name} and {b.name} share too few windows for a spread, so nothing can be called changed or inside the "
            "noise: only what is identical is known. Take 5 windows or more of each.",
        )
    elif PairWords(pair, a, b).too_few:
        yield Notice(
            FEW_WINDOWS,
            f"{a.name} has {counted(a.windows, 'window')} and {b.name} {b.windows}: these can be exchanged in only "
            f"{pair.test['splits']} ways, too few to call any difference changed at {pair.test['level']:.0%}, however "
            "large it is. Take 5 windows or more of each, or show both the same windows.",
        )
    if not pair.settled:
        yield Notice(
            TRANSPORT_NOT_SETTLED,
            f"the transport between {a.name} and {b.name} was still improving when it stopped: their distance is an "
            "upper bound, and the soft pairs of heads are provisional.",
        )
