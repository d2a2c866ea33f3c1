"""A finding: a problem with its remedy, and its severity."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One problem and its remedy."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}; {self.advice}"


class Trouble(NamedTuple):
    """A finding with its name and severity in `doctor`."""

    check: str
    level: Literal["warn", "bad"]
    finding: Finding
    #: Messages are refused until it ends: clients should use other brokers.
    refuses: bool = False
