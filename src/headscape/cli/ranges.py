"""Numbers and heads as they are written on the command line."""

from headscape.errors import InputError


def parse_numbers(text: str, option: str) -> list[int]:
    """Return the numbers of a list of numbers and ranges.

    Examples
    --------
    >>> parse_numbers("0-3,8", "--layers")
    [0, 1, 2, 3, 8]
    """
    numbers: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise InputError(f"{option} must be numbers and ranges such as 0-5,8, but is {text!r}.")
        numbers.update(range(int(first), int(last or first) + 1))
    return sorted(numbers)


def parse_heads(text: str, option: str) -> list[tuple[int, int]]:
    """Return the (layer, head) pairs of a list written as layer.head.

    Examples
    --------
    >>> parse_heads("3.0,3.7", "--heads")
    [(3, 0), (3, 7)]
    """
    pairs: list[tuple[int, int]] = []
    for word in text.split(","):
        layer, _, head = word.strip().partition(".")
        if not layer.isdigit() or not head.isdigit():
            raise InputError(f"{option} must be heads as layer.head, such as 3.0,3.7, but is {text!r}.")
        pairs.append((int(layer), int(head)))
    return pairs
