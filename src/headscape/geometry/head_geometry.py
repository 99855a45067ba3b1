"""One geometry of the heads for all windows: heads are the same points in each, queries and keys are not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headscape.geometry.affinity import emd_affinity
from headscape.geometry.builders.grown import TreeKind, grown_tree
from headscape.geometry.data_order import data_order
from headscape.geometry.diffusion import Eigenpairs, diffusion_map
from headscape.geometry.leaf_order import ordered_leaves
from headscape.geometry.median import median
from headscape.geometry.organization import Organization
from headscape.geometry.partition_tree import PartitionTree

FloatArray64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeadGeometry:
    """Tree, distances, affinity and eigenpairs of the heads, over one or several windows."""

    tree: PartitionTree
    emd: FloatArray64
    affinity: FloatArray64
    eigenpairs: Eigenpairs

    def diffusion_map(self, n_components: int = 3, t: float = 1) -> FloatArray64:
        """Embed the heads by the diffusion map of their affinity."""
        return diffusion_map(self.affinity, n_components, t)

    @classmethod
    def of_window(cls, organization: Organization) -> Self:
        """Return the head geometry of one window, as its organization has it."""
        parts = (organization.trees, organization.emd, organization.affinities, organization.eigenpairs)
        return cls(*(part["head"] for part in parts))  # type: ignore[arg-type]  # four dicts of four types

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        return {
            "tree": self.tree.labels,
            "emd": self.emd,
            "affinity": self.affinity,
            "eigenvalues": self.eigenpairs.values,
            "eigenvectors": self.eigenpairs.vectors,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the geometry that :meth:`arrays` describes."""
        pairs = Eigenpairs(arrays["eigenvalues"], arrays["eigenvectors"])
        return cls(PartitionTree(arrays["tree"]), arrays["emd"], arrays["affinity"], pairs)


def head_geometry(
    emds: Sequence[FloatArray64],
    *,
    tree: TreeKind = "flexible",
    eps_scale: float = 1.0,
    tree_constant: float = 1.0,
    n_eigs: int = 12,
) -> HeadGeometry:
    """Return the geometry of the heads from their EMDs in several windows.

    Parameters
    ----------
    emds
        One (head, head) array per window.
    tree, eps_scale, tree_constant, n_eigs
        As in :class:`headscape.Questionnaire`.

    Notes
    -----
    The distances are those of :func:`mean_emd`; affinity, tree and leaf order follow from them as for one window.

    Examples
    --------
    >>> places = np.array([0.0, 0.1, 5.0, 5.2])
    >>> found = head_geometry([np.abs(places[:, None] - places)] * 2)
    >>> sorted(map(sorted, found.tree.levels()[-2]))
    [[0, 1], [2, 3]]
    """
    emd = mean_emd(emds)
    affinity = emd_affinity(emd, eps_scale)
    grown, pairs, _ = grown_tree(
        affinity, emd, data_order(emd.sum(axis=1)), kind=tree, tree_constant=tree_constant, n_eigs=n_eigs
    )
    return HeadGeometry(ordered_leaves(grown, emd, pairs.vectors[:, 1:]), emd, affinity, pairs)


def mean_emd(emds: Sequence[FloatArray64]) -> FloatArray64:
    """Return the mean over windows of EMDs that are scaled to the same median.

        E = mean over w of E_w m / m_w,  m_w = median of E_w (1 if it is 0),  m = mean of all m_w

    so a window counts the same whatever its scale, and the mean has the units of the EMD.

    Examples
    --------
    >>> mean_emd([np.array([[0.0, 2.0], [2.0, 0.0]]), np.array([[0.0, 6.0], [6.0, 0.0]])]).tolist()
    [[0.0, 4.0], [4.0, 0.0]]
    """
    medians = [median(emd) or 1.0 for emd in emds]
    common = float(np.mean(medians))
    return np.asarray(np.mean([emd * (common / own) for emd, own in zip(emds, medians, strict=True)], axis=0))
