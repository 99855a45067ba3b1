"""The stage "regularity": Hoelder exponents of the logits of every head on its trees (OA definitions 1, 2)."""

from collections.abc import Sequence

import numpy as np

from headscape.analysis.regularity import fitted_exponents
from headscape.errors import InputError
from headscape.study.stages.context import Context
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, NotApplicableError, Outcome, Stage

EXPONENTS = {
    "mixed": "along queries and keys together",
    "query": "along the queries",
    "key": "along the keys",
}


class Regularity(Stage):
    """Fits exponents, and says whether the softmax theorem's range is met."""

    name, title, doing, cost, needs = "regularity", "Regularity", "fitting exponents", 1.1, ("geometry",)
    concurrent = True
    columns = (
        *(
            column
            for name, words in EXPONENTS.items()
            for column in Column(
                f"holder_{name}",
                f"α {name}",
                f"Hölder exponent of the logits on the trees, {words}.",
                direction="smooth",
                panel=name == "mixed",
            ).with_bounds("low", "high")
        ),
        Column(
            "theorem_windows",
            "0<α<½ in",
            "Number of windows in which the exponents are in the range of the softmax theorem.",
            unit="windows",
        ),
    )

    def measure(self, context: Context, piece: int) -> Result:
        """Return the exponents of all heads in one window, on the trees of its organization."""
        try:
            x = context.organized_tensor(piece, "logits")
        except InputError as error:
            raise NotApplicableError(str(error)) from error
        return Result(fitted_exponents(x, context.organizations[piece].trees, engine=context.engine))

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the median exponents over windows, and whether the theorem's range is met."""
        columns = {}
        for name in EXPONENTS:
            stacked = np.stack([result.arrays[name] for result in results])
            for place, ending in enumerate(("", "_low", "_high")):
                columns[f"holder_{name}{ending}"] = np.median(stacked[:, :, place], axis=0)
        # All three conditions of the theorem hold for some alpha if the smallest of the exponents is positive.
        smallest = [np.min([result.arrays[name][:, 0] for name in EXPONENTS], axis=0) for result in results]
        columns["theorem_windows"] = (np.stack(smallest) > 0).sum(axis=0)
        mixed = columns["holder_mixed"]
        q25, median, q75 = np.nanquantile(mixed, [0.25, 0.5, 0.75])
        count = int((columns["theorem_windows"] * 2 > len(results)).sum())
        verdict = (
            "no head is" if count == 0 else f"{count} of {len(mixed)} heads {'is' if count == 1 else 'are'}"
        )
        sentence = (
            f"The mixed Hölder exponent of the logits has median {median:.2f} (interquartile {q25:.2f} to "
            f"{q75:.2f}); {verdict} in the range 0 < alpha < 1/2 that the softmax theorem assumes."
        )
        return Outcome(context.frame(columns), (sentence,), detail=columns)
