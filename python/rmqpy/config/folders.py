"""Folders of a server: the root of a broker's store, and the data folder of a standalone server that contains one.

Invariant: a server refuses the other kind of folder; otherwise it would create a new store next to the messages and
start without them. Functions only read.
"""

from pathlib import Path
from typing import Final

from rmqpy.config.store import FOLDERS, StoreConfig
from rmqpy.errors import ConfigError

#: Folders of the store and of the name server's tables in a data folder.
STORE: Final = "store"
NAME_SERVER: Final = "namesrv"
_LOG: Final = FOLDERS[0]


def is_data_folder(path: Path) -> bool:
    """Whether the store of `path` is one folder below it."""
    return not (path / _LOG).is_dir() and (path / STORE).is_dir()


def root_of(path: Path) -> Path:
    """The root of the store at `path`, which is that root or a data folder."""
    return path / STORE if is_data_folder(path) else path


def check_data_folder(path: Path, config: StoreConfig) -> None:
    """Raise `ConfigError` if a standalone server would start next to the store of a broker."""
    log = path / _LOG
    if log.is_dir() and not (path / STORE).exists() and Path(config.folders[0]) != log.absolute():
        raise ConfigError(
            f"{path} is the store of a broker, not a data folder: its messages would not be served",
            hint=f"run `rmqpy broker storePathRootDir={path}`, or move it to {path.name}/{STORE} and name its parent",
        )


def check_root(config: StoreConfig) -> None:
    """Raise `ConfigError` if a broker would start next to the store of a data folder."""
    root = Path(config.folder)
    if (root / STORE / _LOG).is_dir() and not Path(config.folders[0]).exists():
        raise ConfigError(
            f"storePathRootDir={config.root} is a data folder of rmqpy standalone, with its store one folder below",
            hint=f"set storePathRootDir={root / STORE}, or run `rmqpy standalone --data-dir {root}`",
        )
