"""Pictures of the energy field: surface and contour, spectra, incoherence, spread over keys (IS figures 1-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscape.energy.delocalization import delocalization
from headscape.energy.field import energy_field
from headscape.energy.low_rank import LowRankSoftmax, low_rank_softmax
from headscape.energy.signatures import SpectralSignatures, spectral_signatures
from headscape.energy.spectrum import Spectrum, energy_spectrum
from headscape.energy.table import EnergyTables
from headscape.errors import InputError
from headscape.report.style import (
    ACCENT,
    DIVERGING,
    QUIET,
    SEQUENTIAL,
    label_points,
    name_axes,
    new_axes,
    new_figure,
    set_heading,
)
from headscape.tensor.capture import Capture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[Any]
BLUE = "#1d4ed8"
_MOST_CELLS = 96
_PUBLISHED_INCOHERENCE = 1.5


@dataclass(frozen=True)
class ModelIncoherence:
    """One model in the picture of incoherence against size: median and quartiles of mu_K over its heads."""

    name: str
    parameters: float
    median: float
    q25: float
    q75: float
    family: str = ""

    @classmethod
    def of_tables(
        cls, tables: EnergyTables, name: str, parameters: float, family: str = "", length: int | None = None
    ) -> ModelIncoherence:
        """Sum up the key-value heads of a model at one length, by default the longest."""
        n = tables.lengths[-1] if length is None else length
        mu = tables.kv_heads.loc[tables.kv_heads["length"] == n, "mu_K"].to_numpy(dtype=float)
        if not len(mu):
            raise InputError(f"length must be one of {list(tables.lengths)}, but is {length}.")
        q25, median, q75 = (float(x) for x in np.nanquantile(mu, [0.25, 0.5, 0.75]))
        return cls(name, parameters, median, q25, q75, family)


def energy_figures(
    capture: Capture,
    tables: EnergyTables,
    *,
    head: tuple[int, int] | None = None,
    interaction: Mapping[tuple[int, int], Spectrum] | None = None,
) -> dict[str, Figure]:
    """Return all figures of a model's energy by name.

    Single heads are shown by one in the first window, by default that with the median spread; its spectrum stands
    beside that of W_Q^T W_K, if ``interaction`` has it.
    """
    pair = typical_head(tables) if head is None else head
    if pair not in capture.heads:
        raise InputError(f"there is no head {pair[0]}.{pair[1]} in this capture.")
    record = capture.record(0, pair[0])
    queries, keys = record.queries[pair[1]], record.keys[record.kv_head(pair[1])]
    name, tokens = f"head {pair[0]}.{pair[1]}", capture.tokens(0)
    visible = capture.tensor(0, "energy", heads=[pair]).data[:, :, 0]
    full = energy_field(queries, keys, record.scale)
    mask = record.visible_to(pair[1])
    most = min(len(keys), len(queries), record.head_dim)
    components = sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k < most} | {most})
    moved = low_rank_softmax(queries, keys, record.scale, components, mask)
    figures = {
        "energy_field": energy_field_figure(visible, mask, tokens, name),
        "incoherence_heads": incoherence_figure(tables.kv_heads),
        "singular_values": singular_value_figure(
            energy_spectrum(queries, keys, record.scale), (interaction or {}).get(pair), name
        ),
        "key_shares": key_share_figure(delocalization(queries, keys).shares, tokens, name),
        "low_rank": low_rank_figure(moved, name),
    }
    if len(queries) > 8 and full.any():
        raw = (queries * np.float32(record.scale)) @ keys.T
        figures["power_spectrum"] = power_spectrum_figure(spectral_signatures(full, raw), name)
    return figures


def typical_head(tables: EnergyTables) -> tuple[int, int]:
    """Return the (layer, head) whose participation ratio is the median at the longest length."""
    heads = tables.heads[tables.heads["length"] == tables.lengths[-1]]
    spread = heads["participation"].to_numpy(dtype=float)
    row = heads.iloc[int(np.nanargmin(np.abs(spread - np.nanmedian(spread))))]
    return int(row["layer"]), int(row["head"])


def energy_field_figure(field: Array, visible: Array, tokens: Sequence[str] = (), name: str = "") -> Figure:
    """Draw the energy field of a head, centered over the visible keys, as surface and contour (IS figure 1)."""
    shown = np.where(visible, field, np.nan)
    limit = float(np.nanquantile(np.abs(shown), 0.995)) or 1.0
    figure = new_figure(11.0, 4.8)
    surface: Any = figure.add_subplot(1, 2, 1, projection="3d")
    # A surface of more cells than pixels is slow to draw and shows nothing more.
    step = max(1, -(-max(field.shape) // _MOST_CELLS))
    part = np.clip(shown[::step, ::step], -limit, limit)
    key, query = np.meshgrid(*(np.arange(n) * step for n in part.shape[::-1]))
    scale = {"vmin": -limit, "vmax": limit, "cmap": DIVERGING}
    surface.plot_surface(key, query, part, rcount=len(part), ccount=part.shape[1], linewidth=0, **scale)
    surface.view_init(elev=45, azim=-60)
    surface.set(xlabel="key", ylabel="query", zlabel="energy")
    surface.tick_params(labelsize=6)
    contour = figure.add_subplot(1, 2, 2)
    levels = np.linspace(-limit, limit, 17)
    image = contour.contourf(np.clip(shown, -limit, limit), levels=levels, cmap=DIVERGING)
    contour.contour(np.clip(shown, -limit, limit), levels=levels[::4], colors="#374151", linewidths=0.25)
    contour.invert_yaxis()
    name_axes(contour, "key", "query")
    if len(tokens) == field.shape[0] == field.shape[1]:
        label_points(contour.xaxis, tokens, rotate=True)
        label_points(contour.yaxis, tokens)
    figure.colorbar(image, ax=contour, label="energy", shrink=0.8)
    figure.suptitle(f"Energy field, {name or 'one head'}", x=0.01, ha="left", fontsize=10)
    set_heading(contour, "", "centered over the visible keys: every row sums to zero")
    return figure


def incoherence_figure(kv_heads: pd.DataFrame) -> Figure:
    """Draw the key incoherence of every key-value head at the longest length, by layer and head."""
    n = int(kv_heads["length"].max())
    part = kv_heads[kv_heads["length"] == n]
    grid = part.pivot_table(index="layer", columns="kv_head", values="mu_K")
    values = grid.to_numpy(dtype=float).T
    figure, axes = new_axes(8.0, 1.8 + 0.22 * len(values))
    image = axes.imshow(values, cmap=SEQUENTIAL, aspect="auto", vmin=1, interpolation="nearest")
    name_axes(axes, "layer", "key-value head")
    axes.set_xticks(range(len(grid.index)), [str(layer) for layer in grid.index], fontsize=6)
    axes.set_yticks(range(len(grid.columns)), [str(head) for head in grid.columns], fontsize=6)
    median, count = np.nanmedian(values), np.isfinite(values).sum()
    remark = f"1 = equal norms; median {median:.2f} over {count} key-value heads"
    set_heading(axes, f"Key incoherence, L = {n}", remark)
    figure.colorbar(image, ax=axes, label="mu_K", shrink=0.9)
    return figure


def incoherence_models_figure(models: Sequence[ModelIncoherence]) -> Figure:
    """Draw the key incoherence of several models against their size (IS figure 2)."""
    if not models:
        raise InputError("at least one model is needed for a picture over models.")
    figure, axes = new_axes(6.4, 4.2)
    families = list(dict.fromkeys(model.family for model in models))
    for place, family in enumerate(families):
        some = [model for model in models if model.family == family]
        middle = np.array([model.median for model in some])
        bars = [middle - [m.q25 for m in some], [m.q75 for m in some] - middle]
        axes.errorbar(
            [m.parameters for m in some],
            middle,
            yerr=bars,
            fmt="osD^vPX"[place % 7],
            capsize=2,
            ms=5,
            lw=1,
            label=family or None,
        )
        for model in some:
            spot = (model.parameters, model.q75)
            axes.annotate(
                model.name, spot, xytext=(0, 4), textcoords="offset points", ha="center", fontsize=6
            )
    axes.axhline(1, color=QUIET, ls=":", lw=1)
    axes.axhline(_PUBLISHED_INCOHERENCE, color=ACCENT, ls="--", lw=0.8)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    name_axes(axes, "parameters", "mu_K, median and quartiles over key-value heads")
    if any(families):
        axes.legend(fontsize=7)
    remark = "dotted: equal norms; dashed: where 16 published models lie (near 1.5)"
    set_heading(axes, "Key incoherence over models", remark)
    return figure


def power_spectrum_figure(signatures: SpectralSignatures, name: str = "") -> Figure:
    """Draw the power spectrum of the field read row after row (IS figure 3)."""
    figure, axes = new_axes(7.5, 4.0)
    row = signatures.row_length
    power = np.maximum(signatures.power, 1e-12)
    axes.loglog(signatures.frequencies, power, lw=0.3, color="#94a3b8")
    cycles = signatures.frequencies * row
    comb = np.abs(cycles - np.rint(cycles)) < 1e-9
    axes.loglog(
        signatures.frequencies[comb], power[comb], ".", ms=2.5, color=ACCENT, label="multiples of 1/L"
    )
    axes.axvspan(
        signatures.frequencies[0], 1 / (8 * row), color="#bfdbfe", alpha=0.6, label="0 < f < 1/(8 L)"
    )
    axes.axhline(1, color=QUIET, lw=0.8, ls=":")
    name_axes(axes, "frequency (cycles per entry)", "power, white noise = 1")
    axes.legend(fontsize=7, loc="lower right")
    set_heading(
        axes,
        f"Power spectrum of the flattened field, {name or 'one head'}",
        f"full centering; below 1/(8 L): {signatures.low_band:.2f} (logits {signatures.low_band_logits:.3g}, shuffled "
        f"{signatures.low_band_shuffled:.2f}); share on the comb: {signatures.comb_share:.2f} (rows shuffled "
        f"{signatures.comb_share_shuffled:.3f})",
    )
    return figure


def singular_value_figure(energy: Spectrum, interaction: Spectrum | None = None, name: str = "") -> Figure:
    """Draw how the singular values of the energy field decay, beside those of the learned interaction."""
    figure = new_figure(8.5, 3.8)
    decay, gathered = figure.subplots(1, 2)
    for spectrum, color in ((energy, BLUE), (interaction, ACCENT)):
        if spectrum is None:
            continue
        values = spectrum.singular_values
        place = np.arange(1, len(values) + 1)
        text = f"{spectrum.subject} (90 % in {spectrum.k90})"
        decay.semilogy(place, np.maximum(values / values[0], 1e-8), color=color, label=text)
        gathered.plot(place, np.cumsum(spectrum.variance_shares), color=color)
        gathered.axvline(spectrum.k90, color=color, ls=":", lw=0.8)
    gathered.axhline(0.9, color=QUIET, ls=":", lw=0.8)
    name_axes(decay, "component", "singular value / largest")
    name_axes(gathered, "component", "share of variance, gathered")
    gathered.set_ylim(0, 1.02)
    decay.legend(fontsize=6)
    figure.suptitle(f"Singular values, {name or 'one head'}", x=0.01, ha="left", fontsize=10)
    return figure


def key_share_figure(shares: Array, tokens: Sequence[str] = (), name: str = "") -> Figure:
    """Draw the share of the field's variance at every key position."""
    figure, axes = new_axes(8.0, 3.4)
    axes.bar(np.arange(len(shares)), shares * len(shares), width=1.0, color=BLUE)
    axes.axhline(1, color=ACCENT, lw=0.8)
    name_axes(axes, "key", "share of variance x L")
    if len(tokens) == len(shares):
        label_points(axes.xaxis, tokens, rotate=True)
    participation = 1 / (len(shares) * (shares**2).sum())
    axes.set_xlim(-0.5, len(shares) - 0.5)
    peak = f"peak {len(shares) * shares.max():.1f} at key {int(shares.argmax())}"
    remark = f"full centering; line: a uniform field; participation ratio {participation:.2f}, {peak}"
    set_heading(axes, f"Variance over key positions, {name or 'one head'}", remark)
    return figure


def low_rank_figure(moved: LowRankSoftmax, name: str = "") -> Figure:
    """Draw how far softmax moves when the field keeps only its first components."""
    figure, axes = new_axes(6.0, 4.0)
    low, middle, high = np.nanquantile(np.maximum(moved.divergence, 1e-12), [0.25, 0.5, 0.75], axis=1)
    axes.fill_between(moved.components, low, high, color="#bfdbfe", label="quartiles over rows")
    axes.plot(moved.components, middle, "o-", ms=3, color=BLUE, label="median row")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=1e-8)
    name_axes(axes, "components kept", "KL(P || P_k), nats per row")
    axes.legend(fontsize=7)
    enough = int(np.argmax(moved.variance >= 0.9))
    kept, share = moved.components[enough], moved.variance[enough]
    carried = f"{kept} components carry {share:.0%} of the variance"
    remark = f"{carried}; median KL there: {middle[enough]:.2g} nats"
    set_heading(axes, f"Softmax of the low-rank field, {name or 'one head'}", remark)
    return figure
