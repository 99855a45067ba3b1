"""Draw an idealized head of every attention pattern, and list what even attention scores.

    python examples/make_pattern_pictures.py

Writes docs/images/patterns/*.png and docs/results/pattern_chance.json. The pictures show the matrices that the scores
themselves are computed with, so they cannot differ from what headscape calls a pattern.
"""

import json
from pathlib import Path

import numpy as np

from headscape.analysis.detections import Layout, detections
from headscape.analysis.patterns import PatternScorer, fixed_offsets

DOCS = Path(__file__).parent.parent / "docs"
SENTENCES = "the cat sat . the dog ran , the cat ran . a dog sat , the dog sat ."
TEXT = SENTENCES.split()
GRID = ("[0]", *(f"{row},{column}" for row in range(4) for column in range(4)))
PIXELS = 120
LENGTHS = {"64 tokens": 64, "256 tokens": 256, "1,024 tokens": 1024}


def heads() -> dict[str, np.ndarray]:
    """Return the attention of one idealized head per pattern, (query, key)."""
    n = len(TEXT)
    causal, full = np.tri(n, dtype=bool), np.ones((n, n), dtype=bool)
    of_text = detections(Layout(causal, tokens=tuple(TEXT))).matrices
    of_image = detections(Layout(np.ones((len(GRID),) * 2, dtype=bool), tokens=GRID)).matrices
    found = {name: _attention(matrix, causal) for name, matrix in of_text.items() if "_repeats" not in name}
    found |= {
        name: _attention(of_image[name], None)
        for name in ("class_token", "same_row", "same_column", "neighbors")
    }
    found["next_token"] = _attention(detections(Layout(full)).matrices["next_token"], full)
    found["diagonal_alignment"] = _attention(
        detections(Layout(np.ones((n, n // 2), dtype=bool), cross=True)).matrices["diagonal_alignment"], None
    )
    longer = np.tri(40, dtype=bool)  # the nearest 8 keys of a short window are nearly all of them
    found["local"] = _attention(detections(Layout(longer)).matrices["local"], longer)
    found["offset"] = _attention(np.eye(n, k=-4, dtype=bool), causal)
    sink = np.zeros((n, n), dtype=bool)
    sink[:, 3] = True
    found["sink"] = _attention(sink & causal, causal)
    found["uniform"] = causal / causal.sum(axis=1, keepdims=True)
    return found


def _attention(matrix: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """Return attention that follows a detection matrix; queries without a target attend to the first key."""
    attention = matrix.astype(float)
    attention[~matrix.any(axis=1), 0] = 1.0
    attention /= attention.sum(axis=1, keepdims=True)
    return attention if visible is None else np.where(visible, attention, 0.0)


def save_pictures(folder: Path) -> None:
    """Write a small PNG of every head: queries from top to bottom, keys from left to right."""
    from matplotlib.image import imsave

    folder.mkdir(parents=True, exist_ok=True)
    for name, attention in heads().items():
        shades = np.sqrt(attention / attention.max())
        times = max(1, PIXELS // max(shades.shape))
        imsave(folder / f"{name}.png", np.kron(shades, np.ones((times, times))), cmap="Blues", vmin=0, vmax=1)


def save_chance(path: Path) -> None:
    """Write what a head that attends evenly to all earlier tokens scores."""
    table: dict[str, list[str]] = {}
    for length in LENGTHS.values():
        even = PatternScorer(Layout(np.tri(length, dtype=bool))).chance()
        scores = {name: score[0] for name, score in even.scores.items()}
        scores["offset"] = fixed_offsets(even.diagonals[None])[0][0, 0]
        for name, score in scores.items():
            table.setdefault(name, []).append(f"{round(score, 3) + 0.0:.3f}")
    rows = [[f"`{name}`", *scores] for name, scores in table.items()]
    content = {"columns": ["score", *LENGTHS], "rows": rows}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    save_pictures(DOCS / "images" / "patterns")
    save_chance(DOCS / "results" / "pattern_chance.json")
