"""Claim of a storage in use: an object in it, and a file of the broker that remembers it.

A folder that is not mounted, or an emptied bucket, would otherwise look like a new storage, and consumers of its
messages would be moved past them. Calls block; one thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rmqpy.config import files
from rmqpy.control.tiered.objects import ObjectError, Objects

#: The object.
CLAIM: Final = "in-use.claim"
#: The file of the broker: the place of its storage.
FILE: Final = "tieredStorage.claim"


class Claim:
    """The claim of one storage."""

    def __init__(self, objects: Objects, folder: Path) -> None:
        """`folder` is that of the broker's tables."""
        self._objects = objects
        self._path = folder / FILE

    def check(self, names: set[str], *, may_write: bool) -> None:
        """Raise `ObjectError` if a storage that was in use has no claim among these objects; claim a new one."""
        place = self._objects.place
        is_known = self._known() == place
        if CLAIM not in names:
            if is_known:
                raise ObjectError(
                    f"{place} is empty, or another one than before: mount it; delete {self._path} to begin with it "
                    "as it is"
                )
            if not may_write:
                return
            self._objects.put(CLAIM, b"", is_first=True)
        if not is_known:
            files.save(self._path, f"{place}\n")

    def _known(self) -> str | None:
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
