"""The stage "interaction": components of the learned interaction W_Q^T W_K of every head, from the weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headscape.energy.spectrum import Spectrum
from headscape.errors import ModelError
from headscape.models.anatomy import of_stack
from headscape.recorder.interaction import interaction_spectra
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size
from headscape.study.stages.result import Result
from headscape.study.stages.stage import Column, NotApplicableError, Outcome, Stage


class Interaction(Stage):
    """Reads how many components the learned interaction of every head has."""

    name, title, doing = "interaction", "The learned interaction W_Q^T W_K", "reading the weights"
    unit, cost, optional = "model", 0.2, True
    columns = (
        Column(
            "interaction_k90",
            "W k90",
            "Components for 90 % of the learned interaction W_Q^T W_K.",
            direction="many directions matter",
            panel=True,
        ),
        Column("interaction_rank", "W eff. rank", "Effective rank of the learned interaction W_Q^T W_K."),
    )

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds, whatever the tokens."""
        return self.cost * size.times(tokens=0)

    def measure(self, context: Context, piece: int) -> Result:
        """Return the components of W_Q^T W_K of every head."""
        if context.model is None:
            raise NotApplicableError("the weights are not at hand, only what was captured from them")
        try:
            spectra = interaction_spectra(of_stack(context.model.modules(), context.data.stack))
        except ModelError as error:
            raise NotApplicableError(str(error)) from error
        rows = [[spectra[pair].k90, spectra[pair].effective_rank] for pair in context.heads]
        values = [spectra[pair].singular_values for pair in context.heads]
        width = max(map(len, values))
        padded = [np.pad(one, (0, width - len(one)), constant_values=np.nan) for one in values]
        return Result(
            {"interaction": np.asarray(rows, dtype=np.float64), "singular_values": np.stack(padded)}
        )

    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return the components of the learned interaction as columns."""
        k90, rank = results[0].arrays["interaction"].T
        q25, median, q75 = np.nanquantile(k90, [0.25, 0.5, 0.75])
        sentence = (
            f"The learned interaction W_Q^T W_K needs {median:.0f} components for 90 % of its variance in the median "
            f"head (interquartile {q25:.0f}-{q75:.0f})."
        )
        columns = {"interaction_k90": k90, "interaction_rank": rank}
        spectra = {
            pair: Spectrum(
                values[~np.isnan(values)], int(np.isfinite(values).sum()), "learned interaction W_Q^T W_K"
            )
            for pair, values in zip(context.heads, results[0].arrays.get("singular_values", ()), strict=False)
        }
        return Outcome(context.frame(columns), (sentence,), detail=spectra)
