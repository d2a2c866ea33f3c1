"""Declarations of settings: one dataclass per role, its properties file, and changes while it runs.

Owns the declaration of a key (file name, unit, bounds, description, whether it may change while the process runs) and
its conversion to and from text. A configuration is a frozen dataclass with fields made by `key`; a change returns a new
one. Values are always within bounds. Pure; any thread.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, get_type_hints

from rmqpy.config import properties
from rmqpy.errors import ConfigError

_KEY = "rmqpy.key"

#: The default of maxConnections: ten thousand idle connections take 100 MB.
CONNECTIONS_MAX: Final = 10_000
#: RocketMQ's usual HTTP port, and the value of httpPort that turns HTTP off.
HTTP_PORT: Final = 8_082
NO_HTTP: Final = -1
#: The default of grpcServerPort, and the value that turns gRPC off.
GRPC_PORT: Final = 8_081
NO_GRPC: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """File name and allowed values of a field."""

    wire: str
    doc: str
    unit: str
    low: int | None
    high: int | None
    choices: tuple[str, ...]
    is_changeable: bool
    #: The value is never shown.
    is_secret: bool = False


#: Shown instead of a secret.
MASK: Final = "******"


def key(
    wire: str,
    default: bool | int | str | Callable[[], str],
    doc: str,
    *,
    unit: str = "",
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    changeable: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a setting: a bool, an int from `low` to `high`, or a string, limited to `choices` if there are any.

    A callable `default` is evaluated when the configuration is made. A `secret` is never shown.
    """
    metadata = {_KEY: Key(wire, doc, unit, low, high, choices, changeable, secret)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration of a role: read from a file, changed while the process runs, written."""

    def __post_init__(self) -> None:
        for wire, (name, declaration) in self.declared().items():
            _check(wire, declaration, getattr(self, name))

    @classmethod
    def declared(cls) -> dict[str, tuple[str, Key]]:
        """Field and declaration of every key, by its name in the file."""
        return {
            field.metadata[_KEY].wire: (field.name, field.metadata[_KEY])
            for field in dataclasses.fields(cls)
            if _KEY in field.metadata
        }

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Return a configuration from the entries of a file. Keys of other roles are ignored.

        Raises `ConfigError` naming the key, the value and what was expected.
        """
        return cls(**cls._values(given))

    def change(self, given: Mapping[str, str]) -> Self:
        """Return the configuration with these keys changed. Keys of other roles are ignored.

        Raises `ConfigError` for a bad value, and for a key that cannot change while the process runs.
        """
        for wire in given:
            if wire in self.declared() and not self.declared()[wire][1].is_changeable:
                raise ConfigError(f"{wire} can only be changed in the file, with a restart")
        return dataclasses.replace(self, **self._values(given))

    def write(self) -> dict[str, str]:
        """Return every key with its value as in a file, without secrets."""
        values = {wire: _text(getattr(self, name)) for wire, (name, _) in self.declared().items()}
        return {
            wire: MASK if value and self.declared()[wire][1].is_secret else value
            for wire, value in values.items()
        }

    def changed(self) -> str:
        """Return keys with values other than the default, in one line for a log."""
        usual = type(self)().write()
        found = (f"{wire}={value}" for wire, value in self.write().items() if value != usual[wire])
        return ", ".join(found) or "all settings have their defaults"

    @classmethod
    def _values(cls, given: Mapping[str, str]) -> dict[str, Any]:
        kinds = get_type_hints(cls)
        return {
            name: _value(wire, kinds[name], given[wire])
            for wire, (name, _) in cls.declared().items()
            if wire in given
        }


_Config = TypeVar("_Config", bound=Settings)


class LoadedConfig(NamedTuple, Generic[_Config]):
    """A configuration, and a sentence for each key that is not supported."""

    config: _Config
    warnings: list[str]


def read_file(path: str | Path | None) -> dict[str, str]:
    """Return the entries of a file; empty without a path. Raises `ConfigError` if it cannot be read."""
    if path is None:
        return {}
    try:
        return properties.parse(properties.decode(Path(path).read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


class ProtectedKey(ConfigError):
    """A change of a key that administrators may not change online."""


def protects(listed: str, wire: str) -> bool:
    """Whether a `configBlackList` protects this key from online changes."""
    # Apache always protects the last one.
    return wire in (*(part.strip() for part in listed.split(";")), "rocketmqHome")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known key that a misspelt one probably meant."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.8)
    return by_lower[close[0]] if close else None


def _check(wire: str, declaration: Key, value: bool | int | str) -> None:
    if declaration.choices and value not in declaration.choices:
        raise ConfigError(f"{wire}={value}: must be one of {', '.join(declaration.choices)}")
    low, high = declaration.low, declaration.high
    if isinstance(value, int) and not ((low is None or low <= value) and (high is None or value <= high)):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{wire}={value}: must be {bounds} {declaration.unit}".rstrip())


def _value(wire: str, kind: type, text: str) -> bool | int | str:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{wire}={text}: must be true or false")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{wire}={text}: must be a whole number") from None
    return text


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
