"""Files of Iceberg that survive a power loss: pyiceberg writes them to the page cache only.

pyiceberg closes data files and manifests before the metadata that refers to them, and the metadata before the catalog
is changed. Each file is flushed when it is closed, with the folders that it is the first in. Imports pyiceberg.
"""

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """The files of a folder on this machine."""

    def new_output(self, location: str) -> "DurableOutput":
        """Return a file to write."""
        plain = super().new_output(location)
        return DurableOutput(plain.location, plain._path, plain._filesystem)


class DurableOutput(PyArrowFile):  # type: ignore[misc]
    """A file that is flushed when it is closed."""

    def create(self, overwrite: bool = False) -> Any:
        """Return a stream to the file. Raises `FileExistsError`."""
        path = Path(self._path)
        _make(path.parent)
        return _Flushed(io.FileIO(path, "w" if overwrite else "x"), 1 << 20)


class _Flushed(io.BufferedWriter):
    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            _sync(Path(self.raw.name).parent)  # type: ignore[attr-defined]
        super().close()


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
