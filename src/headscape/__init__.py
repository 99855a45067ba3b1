"""headscape maps the attention heads of transformers.

>>> import headscape as hs
>>> hs.organize(hs.planted_tensor(queries=8, keys=8, layers=2, heads_per_layer=3)).axes
('query', 'key', 'head')

The names below are the public interface. They are loaded when first used, so ``import headscape`` is quick and
needs no optional part.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscape._version import __version__

if TYPE_CHECKING:
    from headscape.ablation.ablation_result import AblationStudy as AblationStudy
    from headscape.ablation.ablation_study import ablation_study as ablation_study
    from headscape.ablation.rankings import HeadRanking as HeadRanking
    from headscape.ablation.rankings import rank_heads as rank_heads
    from headscape.analysis.dyadic_trees import dyadic_trees as dyadic_trees
    from headscape.analysis.entropy import head_entropy as head_entropy
    from headscape.analysis.entropy import network_entropy as network_entropy
    from headscape.analysis.entropy_study import EntropyStudy as EntropyStudy
    from headscape.analysis.entropy_study import entropy_study as entropy_study
    from headscape.analysis.haar import haar as haar
    from headscape.analysis.haar import haar_basis as haar_basis
    from headscape.analysis.haar import inverse_haar as inverse_haar
    from headscape.analysis.haar import inverse_tensor_haar as inverse_tensor_haar
    from headscape.analysis.haar import tensor_haar as tensor_haar
    from headscape.analysis.intervals import Interval as Interval
    from headscape.analysis.intervals import bootstrap as bootstrap
    from headscape.analysis.paraproduct import Paraproduct as Paraproduct
    from headscape.analysis.paraproduct import paraproduct as paraproduct
    from headscape.analysis.regularity import HolderExponents as HolderExponents
    from headscape.analysis.regularity import holder_exponent as holder_exponent
    from headscape.analysis.sensitivity import sensitivity as sensitivity
    from headscape.analysis.softmax_experiment import SoftmaxExperiment as SoftmaxExperiment
    from headscape.analysis.softmax_experiment import softmax_experiment as softmax_experiment
    from headscape.analysis.softmax_invariance import SoftmaxInvariance as SoftmaxInvariance
    from headscape.analysis.softmax_invariance import softmax_invariance as softmax_invariance
    from headscape.analysis.sparsity import best_approximation as best_approximation
    from headscape.analysis.sparsity import coefficients_needed as coefficients_needed
    from headscape.analysis.sparsity import denoise as denoise
    from headscape.analysis.sparsity import sparsity_curve as sparsity_curve
    from headscape.analysis.sparsity import sparsity_curves as sparsity_curves
    from headscape.analysis.stability import rank_stability as rank_stability
    from headscape.analysis.supports import top_supports as top_supports
    from headscape.analysis.wavelets import wavelets as wavelets
    from headscape.energy.delocalization import delocalization as delocalization
    from headscape.energy.delocalization import field_delocalization as field_delocalization
    from headscape.energy.field import energy_field as energy_field
    from headscape.energy.field import log_ratio_energy as log_ratio_energy
    from headscape.energy.incoherence import key_incoherence as key_incoherence
    from headscape.energy.low_rank import energy_components as energy_components
    from headscape.energy.low_rank import low_rank_softmax as low_rank_softmax
    from headscape.energy.signatures import spectral_signatures as spectral_signatures
    from headscape.energy.spectrum import energy_spectrum as energy_spectrum
    from headscape.energy.spectrum import interaction_spectrum as interaction_spectrum
    from headscape.energy.statements import energy_statements as energy_statements
    from headscape.energy.table import energy_table as energy_table
    from headscape.energy.table import energy_tables as energy_tables
    from headscape.errors import HeadscapeError as HeadscapeError
    from headscape.geometry.diffusion import diffusion_map as diffusion_map
    from headscape.geometry.folder_averages import folder_averages as folder_averages
    from headscape.geometry.organization import Organization as Organization
    from headscape.geometry.organization import organize as organize
    from headscape.geometry.partition_tree import PartitionTree as PartitionTree
    from headscape.geometry.questionnaire import Questionnaire as Questionnaire
    from headscape.geometry.tree_emd import tree_emd as tree_emd
    from headscape.models.loading import load_model as load_model
    from headscape.pruning.manifest_files import apply_manifest as apply_manifest
    from headscape.pruning.manifest_files import export_manifest as export_manifest
    from headscape.pruning.pruned import Pruned as Pruned
    from headscape.pruning.pruned_files import load_pruned as load_pruned
    from headscape.pruning.pruned_files import save_pruned as save_pruned
    from headscape.pruning.removal import prune as prune
    from headscape.pruning.trial import PruningTrial as PruningTrial
    from headscape.pruning.trial import pruning_trial as pruning_trial
    from headscape.recorder.capturing import capture as capture
    from headscape.study.analyze import analyze as analyze
    from headscape.study.check import check as check
    from headscape.study.check_report import CheckReport as CheckReport
    from headscape.study.study import Study as Study
    from headscape.tensor.capture import Capture as Capture
    from headscape.tensor.files import load_tensor as load_tensor
    from headscape.tensor.files import save_tensor as save_tensor
    from headscape.tensor.network_tensor import NetworkTensor as NetworkTensor
    from headscape.tensor.synthetic import planted_tensor as planted_tensor

logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOME = {
    "AblationStudy": "ablation.ablation_result",
    "Capture": "tensor.capture",
    "CheckReport": "study.check_report",
    "EntropyStudy": "analysis.entropy_study",
    "HeadRanking": "ablation.rankings",
    "HeadscapeError": "errors",
    "HolderExponents": "analysis.regularity",
    "Interval": "analysis.intervals",
    "NetworkTensor": "tensor.network_tensor",
    "Organization": "geometry.organization",
    "Paraproduct": "analysis.paraproduct",
    "PartitionTree": "geometry.partition_tree",
    "Pruned": "pruning.pruned",
    "PruningTrial": "pruning.trial",
    "Questionnaire": "geometry.questionnaire",
    "SoftmaxExperiment": "analysis.softmax_experiment",
    "SoftmaxInvariance": "analysis.softmax_invariance",
    "Study": "study.study",
    "ablation_study": "ablation.ablation_study",
    "analyze": "study.analyze",
    "apply_manifest": "pruning.manifest_files",
    "best_approximation": "analysis.sparsity",
    "bootstrap": "analysis.intervals",
    "capture": "recorder.capturing",
    "check": "study.check",
    "coefficients_needed": "analysis.sparsity",
    "delocalization": "energy.delocalization",
    "denoise": "analysis.sparsity",
    "diffusion_map": "geometry.diffusion",
    "dyadic_trees": "analysis.dyadic_trees",
    "energy_components": "energy.low_rank",
    "energy_field": "energy.field",
    "energy_spectrum": "energy.spectrum",
    "energy_statements": "energy.statements",
    "energy_table": "energy.table",
    "energy_tables": "energy.table",
    "entropy_study": "analysis.entropy_study",
    "export_manifest": "pruning.manifest_files",
    "field_delocalization": "energy.delocalization",
    "folder_averages": "geometry.folder_averages",
    "haar": "analysis.haar",
    "haar_basis": "analysis.haar",
    "head_entropy": "analysis.entropy",
    "holder_exponent": "analysis.regularity",
    "interaction_spectrum": "energy.spectrum",
    "inverse_haar": "analysis.haar",
    "inverse_tensor_haar": "analysis.haar",
    "key_incoherence": "energy.incoherence",
    "load_model": "models.loading",
    "load_pruned": "pruning.pruned_files",
    "load_tensor": "tensor.files",
    "log_ratio_energy": "energy.field",
    "low_rank_softmax": "energy.low_rank",
    "network_entropy": "analysis.entropy",
    "organize": "geometry.organization",
    "paraproduct": "analysis.paraproduct",
    "planted_tensor": "tensor.synthetic",
    "prune": "pruning.removal",
    "pruning_trial": "pruning.trial",
    "rank_heads": "ablation.rankings",
    "rank_stability": "analysis.stability",
    "save_pruned": "pruning.pruned_files",
    "save_tensor": "tensor.files",
    "sensitivity": "analysis.sensitivity",
    "softmax_experiment": "analysis.softmax_experiment",
    "softmax_invariance": "analysis.softmax_invariance",
    "sparsity_curve": "analysis.sparsity",
    "sparsity_curves": "analysis.sparsity",
    "spectral_signatures": "energy.signatures",
    "tensor_haar": "analysis.haar",
    "top_supports": "analysis.supports",
    "tree_emd": "geometry.tree_emd",
    "wavelets": "analysis.wavelets",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headscape' has no attribute {name!r}")
    value = getattr(import_module(f"headscape.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
