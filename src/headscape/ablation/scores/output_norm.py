"""Size of what a head can write: the norm of its output map."""

import numpy as np
from numpy.typing import NDArray

from headscape.ablation.head_evaluator import HeadEvaluator


def output_norm(evaluator: HeadEvaluator) -> NDArray[np.float64]:
    """Return the Frobenius norm of the output map of every head, from the weights alone.

        | W_O^h W_V^h |_F,   squared = trace of (W_O^T W_O) (W_V W_V^T), d x d each

    where W_V^h is the value projection of the key-value head that h shares.
    """
    norms = []
    for module in evaluator.modules:
        _, _, values = module.weights()
        projection = evaluator.projections[module.layer]
        matrix = projection.matrix.detach().double().cpu().numpy()
        for head in range(module.n_heads):
            w_o = matrix[:, projection.columns([head]).numpy()]
            w_v = values[head * module.n_kv_heads // module.n_heads].astype(np.float64)
            square = np.sum((w_o.T @ w_o) * (w_v @ w_v.T))
            norms.append(np.sqrt(max(0.0, square)))
    return np.asarray(norms)
