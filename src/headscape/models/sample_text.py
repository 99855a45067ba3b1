"""The text that is analyzed when none is given: English prose that every Python has."""


def sample_text() -> str:
    """Return the longer topics of Python's own language reference, one after another.

    Examples
    --------
    >>> len(sample_text()) > 100_000
    True
    """
    from pydoc_data.topics import topics

    # Short topics are mostly cross-references; the long ones read as text.
    return "\n\n".join(topics[name].strip() for name in sorted(topics) if len(topics[name]) > 2000)
