"""Files of a backup: listed, hashed, flushed, compared with the manifest, and copied.

Log files have their full size from the start, so copies leave the unwritten parts out. Invariant: memory is bounded by
one block. Functions block on the disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rmqpy.backup.manifest import ACCESS, FileEntry, Manifest, store_of
from rmqpy.config.folders import STORE

#: Takes the bytes done and the total.
Show = Callable[[int, int], None]

_BLOCK_BYTES: Final = 4 << 20
_ZEROS: Final = bytes(_BLOCK_BYTES)
#: Files of a process that has the store open.
_TRANSIENT: Final = frozenset({f"{STORE}/lock", f"{STORE}/abort"})
_LOG: Final = f"{STORE}/commitlog/"


def listed(backup: Path) -> list[Path]:
    """Return the files of a backup, by path."""
    found = [path for path in store_of(backup).rglob("*") if path.is_file()]
    if (backup / ACCESS).is_file():
        found.append(backup / ACCESS)
    return sorted(path for path in found if path.relative_to(backup).as_posix() not in _TRANSIENT)


def hashed(backup: Path, known: Manifest, show: Show) -> tuple[FileEntry, ...]:
    """Flush all files and return their entries. Log files that were full at the `known` run keep their checksums: they
    never change, and a later verification finds damage."""
    full = _full_log_files(known)
    paths = listed(backup)
    total, done = sum(path.stat().st_size for path in paths), 0
    entries = []
    for path in paths:
        name, size = path.relative_to(backup).as_posix(), path.stat().st_size
        with path.open("rb") as file:
            os.fsync(file.fileno())
        if (before := full.get(name)) is not None and before.size == size:
            entries.append(before)
            done += size
        else:
            sha = hashlib.sha256()
            for block in _blocks(path):
                sha.update(block)
                done += len(block)
                show(done, total)
            entries.append(FileEntry(name, size, sha.hexdigest()))
        show(done, total)
    for folder in {path.parent for path in paths} | {backup}:
        flush_folder(folder)
    return tuple(entries)


def _full_log_files(known: Manifest) -> Mapping[str, FileEntry]:
    found = {}
    for entry in known.files:
        base = entry.path.removeprefix(_LOG)
        if base != entry.path and base.isdecimal() and int(base) + entry.size <= known.log_end:
            found[entry.path] = entry
    return found


def damage(backup: Path, manifest: Manifest, show: Show) -> list[str]:
    """Compare the files with the manifest; return a sentence for each that differs, is missing or is unknown."""
    found = []
    total, done = sum(entry.size for entry in manifest.files), 0
    for entry in manifest.files:
        sha, path = hashlib.sha256(), backup / entry.path
        try:
            size = path.stat().st_size
            if size == entry.size:
                for block in _blocks(path):
                    sha.update(block)
                    done += len(block)
                    show(done, total)
        except FileNotFoundError:
            found.append(f"{entry.path} is missing")
            continue
        if size != entry.size:
            found.append(f"{entry.path} has {size} bytes, not {entry.size}")
        elif sha.hexdigest() != entry.sha256:
            found.append(f"{entry.path} differs from its checksum")
    known = {entry.path for entry in manifest.files}
    unknown = (path.relative_to(backup).as_posix() for path in listed(backup))
    return found + [f"{name} is not in the manifest" for name in unknown if name not in known]


def copied(backup: Path, names: Sequence[tuple[str, str | None]], target: Path, show: Show) -> list[str]:
    """Copy files of the store, each with its expected checksum if known, below `target`, and flush them. Returns a
    sentence for each whose checksum differs."""
    found = []
    total, done = sum((backup / name).stat().st_size for name, _ in names), 0
    folders = {target}
    for name, wanted in names:
        path = target / Path(name).relative_to(STORE)
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.add(path.parent)
        sha = hashlib.sha256()
        with path.open("xb") as file:
            for block in _blocks(backup / name):
                sha.update(block)
                if block == _ZEROS[: len(block)]:
                    file.seek(len(block), os.SEEK_CUR)
                else:
                    file.write(block)
                done += len(block)
                show(done, total)
            file.truncate((backup / name).stat().st_size)
            file.flush()
            os.fsync(file.fileno())
        path.chmod((backup / name).stat().st_mode & 0o7777)
        if wanted is not None and sha.hexdigest() != wanted:
            found.append(f"{name} differs from its checksum")
    for folder in folders:
        flush_folder(folder)
    return found


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
