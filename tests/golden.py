"""The golden bytes of `tests/vectors`, for tests in Python."""

from itertools import pairwise
from pathlib import Path

from wire import Frame

FOLDER = Path(__file__).parent / "vectors" / "golden"


def golden(name: str) -> dict[str, bytes]:
    """The pieces of one file by name, as a rule `request` and `reply`."""
    lines = (FOLDER / f"{name}.hex").read_text(encoding="utf-8").splitlines()
    return {
        title.split("]")[0].lstrip("["): bytes.fromhex(content)
        for title, content in pairwise(lines)
        if title.startswith("[")
    }


def golden_frame(name: str, piece: str) -> Frame:
    """One piece that is a frame."""
    return Frame.unpack(golden(name)[piece][4:])
