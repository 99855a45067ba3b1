"""What the user wants of a smaller model: a share of the heads, given heads, a smaller cache, a bound on the loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headscape.errors import InputError
from headscape.pruning.removal_order import GROUPS, UNITS, kind_of
from headscape.tensor.checks import require_integer

SHARES = ("fraction", "target_kv", "target_params")
MAX_STEPS = 100_000


@dataclass(frozen=True)
class Goal:
    """One of ``fraction``, ``heads``, ``target_kv``, ``target_params`` and ``max_loss``, and how heads may go.

    See :func:`headscape.pruning_trial` for what each means.
    """

    fraction: float | None = None
    heads: Sequence[tuple[int, int]] | None = None
    target_kv: float | None = None
    target_params: float | None = None
    max_loss: float | None = None
    groups: bool = False
    uniform: bool = False

    def __post_init__(self) -> None:
        wanted = ("fraction", "heads", "target_kv", "target_params", "max_loss")
        given = [name for name in wanted if getattr(self, name) is not None]
        if len(given) != 1:
            came = " and ".join(given) or "none"
            raise InputError(
                "give one of fraction=..., the share of the heads that may go, heads=[...], target_kv=..., "
                f"target_params=... and max_loss=..., but got {came}."
            )
        require_wishes(vars(self))
        if self.heads is not None and (self.groups or self.uniform):
            raise InputError("groups and uniform say how heads are chosen: leave them out with heads=[...].")

    def asked(self) -> dict[str, Any]:
        """Return what was asked for as plain values, without what was left out."""
        found = {name: value for name, value in vars(self).items() if value not in (None, False)}
        return found | (
            {} if self.heads is None else {"heads": [list(map(int, pair)) for pair in self.heads]}
        )

    @property
    def kind(self) -> str:
        """The kind of steps that heads go in; only whole groups make the cache smaller."""
        return kind_of(self.groups or self.target_kv is not None, self.uniform)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that may reach the goal; the cheaper one is taken."""
        free = self.target_params is not None and self.kind == UNITS
        return (UNITS, GROUPS) if free else (self.kind,)

    @property
    def searches(self) -> bool:
        """Whether sizes or kinds are compared by their loss."""
        return self.max_loss is not None or len(self.kinds) > 1


def require_wishes(values: Mapping[str, Any], flag: str = "") -> None:
    """Raise unless shares lie between 0 and 1 and a loss is positive; ``flag`` stands before names, for commands."""
    for name in (*SHARES, "max_loss"):
        value = values.get(name)
        label = f"{flag}{name.replace('_', '-') if flag else name}"
        if value is None:
            continue
        if name == "max_loss" and not 0 < value < float("inf"):
            raise InputError(f"{label} must be a positive loss increase, but is {value}.")
        if name != "max_loss" and not 0 < value < 1:
            raise InputError(f"{label} must be more than 0 and less than 1, but is {value}.")


def require_steps(steps: int, name: str = "recover") -> None:
    """Raise unless a number of training steps is sensible."""
    require_integer(steps, name, 0, MAX_STEPS)
