"""The one text that is used when none is given: sample text bundled with Python."""

from pydoc_data.topics import topics


def sample_text() -> str:
    """Return the longer topics of Python's own language reference, one after another.

    Examples
    --------
    >>> len(sample_text()) > 100_000
    True
    """
    # Short topics are mostly cross-references; the long ones read as text.
    return "\n\n".join(topics[name].strip() for name in sorted(topics) if len(topics[name]) > 2000)
