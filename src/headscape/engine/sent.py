"""What goes to another process: a function once, tasks one by one, both as bytes that any worker can read.

Functions that hold variables (closures, lambdas) need cloudpickle, which Dask brings along.
"""

import pickle
from typing import Any

from headscape.errors import EngineError, MissingDependencyError

try:
    import cloudpickle
except ImportError:  # an extra; functions of modules do without
    cloudpickle = None

_PROTOCOL = 5


def packed(value: Any) -> bytes:
    """Return any object, functions included, as bytes; a worker reads them with ``pickle``.

    Examples
    --------
    >>> pickle.loads(packed(range(3)))
    range(0, 3)
    """
    try:
        return pickle.dumps(value, _PROTOCOL)
    except (AttributeError, TypeError, pickle.PicklingError):
        pass  # closures and lambdas
    if cloudpickle is None:
        raise MissingDependencyError(
            "sending work to other processes needs cloudpickle: pip install 'headscape[dask]'."
        )
    try:
        return bytes(cloudpickle.dumps(value, _PROTOCOL))
    except Exception as error:  # whatever the object's own __reduce__ raises
        raise EngineError(f"{value!r:.80} cannot be sent to another process: {error}.") from error
