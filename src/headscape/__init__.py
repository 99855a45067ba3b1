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
    from headscape.errors import HeadscapeError as HeadscapeError
    from headscape.geometry.diffusion import diffusion_map as diffusion_map
    from headscape.geometry.folder_averages import folder_averages as folder_averages
    from headscape.geometry.organization import Organization as Organization
    from headscape.geometry.organization import organize as organize
    from headscape.geometry.partition_tree import PartitionTree as PartitionTree
    from headscape.geometry.questionnaire import Questionnaire as Questionnaire
    from headscape.geometry.tree_emd import tree_emd as tree_emd
    from headscape.recorder.capturing import capture as capture
    from headscape.recorder.models import load_model as load_model
    from headscape.tensor.capture import Capture as Capture
    from headscape.tensor.files import load_tensor as load_tensor
    from headscape.tensor.files import save_tensor as save_tensor
    from headscape.tensor.network_tensor import NetworkTensor as NetworkTensor
    from headscape.tensor.synthetic import planted_tensor as planted_tensor

logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOME = {
    "Capture": "tensor.capture",
    "HeadscapeError": "errors",
    "NetworkTensor": "tensor.network_tensor",
    "Organization": "geometry.organization",
    "PartitionTree": "geometry.partition_tree",
    "Questionnaire": "geometry.questionnaire",
    "capture": "recorder.capturing",
    "diffusion_map": "geometry.diffusion",
    "folder_averages": "geometry.folder_averages",
    "load_model": "recorder.models",
    "load_tensor": "tensor.files",
    "organize": "geometry.organization",
    "planted_tensor": "tensor.synthetic",
    "save_tensor": "tensor.files",
    "tree_emd": "geometry.tree_emd",
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
