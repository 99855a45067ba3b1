"""The figures of a study for papers, as matplotlib objects."""

from typing import TYPE_CHECKING, Any

from headscape.report.ablation_figures import ablation_figures
from headscape.report.energy_figures import energy_figures
from headscape.report.geometry_figures import organization_figures
from headscape.report.haar_figures import entropy_figures

if TYPE_CHECKING:
    from headscape.study.study import Study


def study_figures(study: "Study") -> dict[str, Any]:
    """Return all figures of the stages that ran, by name; single heads and windows are shown by the first."""
    x = study.capture.tensor(0, study.parameters["field"])
    figures: dict[str, Any] = dict(organization_figures(x, study.organization))
    if study.entropy is not None:
        figures |= {f"entropy_{name}": figure for name, figure in entropy_figures(study.entropy, x).items()}
    if study.energy is not None:
        found = energy_figures(study.capture, study.energy)
        figures |= {f"energy_{name}": figure for name, figure in found.items()}
    if study.ablation is not None:
        figures |= ablation_figures(study.ablation)
    return figures
