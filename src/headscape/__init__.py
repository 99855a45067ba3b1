"""headscape maps the attention heads of transformers.

>>> import headscape as hs
>>> hs.organize(hs.planted_tensor(queries=8, keys=8, layers=2, heads_per_layer=3)).axes
('query', 'key', 'head')

The public names are those of ``__init__.pyi``. They are loaded when first used, so ``import headscape`` is quick and
needs no optional part.
"""

import logging

import lazy_loader

from headscape._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

logging.getLogger(__name__).addHandler(logging.NullHandler())
