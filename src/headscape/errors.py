"""One family of errors, so that a caller needs to catch one class only.

Every message says what was wanted, what came, and what to do about it.
"""


class HeadscapeError(Exception):
    """Base of all errors that headscape raises on purpose."""


class InputError(HeadscapeError, ValueError):
    """An argument, an array or a text is not what the function needs."""


class FileFormatError(HeadscapeError, ValueError):
    """A file is missing, damaged, of another kind, or written by a newer headscape."""


class StorageError(HeadscapeError, OSError):
    """Something could not be written or locked: a full disk, a second writer, no permission."""


class MissingDependencyError(HeadscapeError, ImportError):
    """An optional part (an extra, default weights) is not installed."""


class ModelError(HeadscapeError, RuntimeError):
    """A model cannot be loaded, or its attention cannot be seen."""


class EngineError(HeadscapeError, RuntimeError):
    """Work could not be spread: a worker or the scheduler of a cluster was lost, or cannot be reached."""
