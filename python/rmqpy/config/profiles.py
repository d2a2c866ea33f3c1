"""Profiles: named clusters of a user, in one file.

::

    [profile.staging]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    timeout = 5.0
    namespace = "shop"
    access_key = "alice"
    secret_key = "…"
    tls = { ca = "/etc/rmqpy/ca.pem" }

`tls = true` trusts the authorities of the system.

Read only if a profile is named. The file is `$RMQPY_PROFILES`, else `rmqpy/profiles.toml` in the user's configuration
folder.
"""

import dataclasses
import os
import tomllib
from pathlib import Path
from typing import NamedTuple

from rmqpy.config import home, text
from rmqpy.config.tls import TLS
from rmqpy.errors import ConfigError


class Profile(NamedTuple):
    """Settings of a profile; None if not set."""

    namesrv: str | None = None
    #: The request timeout in seconds.
    timeout: float | None = None
    #: The namespace of topics and groups.
    namespace: str | None = None
    #: The user that signs requests; the secret is never shown.
    access_key: str | None = None
    secret_key: str | None = None
    tls: TLS | None = None


def path() -> Path:
    """Return the path of the file, which need not exist. Raises `ConfigError` for a user without a home folder."""
    if given := os.environ.get("RMQPY_PROFILES"):
        return Path(given)
    folder = os.environ.get("XDG_CONFIG_HOME") or home.folder("profiles.toml") / ".config"
    return Path(folder) / "rmqpy" / "profiles.toml"


def load() -> dict[str, Profile]:
    """Return all profiles by name. Raises `ConfigError` naming the file and the mistake."""
    file = path()
    try:
        tables = tomllib.loads(text.decode(file.read_bytes())).get("profile", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: a profile must be a table [profile.NAME]")
    return {name: _read(file, name, table) for name, table in tables.items()}


def get(name: str) -> Profile:
    """Return one profile. Raises `ConfigError` if it does not exist."""
    known = load()
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"no profile {name!r} in {path()}: known profiles: {there}")
    return known[name]


def _read(file: Path, name: str, table: object) -> Profile:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: profile.{name} is not a table")
    if unknown := table.keys() - set(Profile._fields):
        raise ConfigError(f"{file}: profile.{name} has unknown keys: {', '.join(sorted(unknown))}")
    namesrv, timeout = table.get("namesrv"), table.get("timeout")
    if not isinstance(namesrv, str | None):
        raise ConfigError(f"{file}: namesrv of profile.{name} must be a string")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ConfigError(f"{file}: timeout of profile.{name} must be a number of seconds")
    namespace = table.get("namespace")
    if not isinstance(namespace, str | None):
        raise ConfigError(f"{file}: namespace of profile.{name} must be a string")
    access_key, secret_key = table.get("access_key"), table.get("secret_key")
    if not isinstance(access_key, str | None) or not isinstance(secret_key, str | None):
        raise ConfigError(f"{file}: access_key and secret_key of profile.{name} must be strings")
    if bool(access_key) != bool(secret_key):
        raise ConfigError(f"{file}: profile.{name} must have both access_key and secret_key")
    return Profile(namesrv, timeout, namespace, access_key, secret_key, _tls(file, name, table.get("tls")))


def _tls(file: Path, name: str, given: object) -> TLS | None:
    if given is None or isinstance(given, bool):
        return TLS.of(given)
    known = {field.name for field in dataclasses.fields(TLS)}
    if not isinstance(given, dict) or given.keys() - known:
        expected = ", ".join(sorted(known))
        raise ConfigError(f"{file}: tls of profile.{name} must be true, or a table with some of {expected}")
    try:
        return TLS(**given)
    except TypeError as error:
        raise ConfigError(f"{file}: tls of profile.{name}: {error}") from None
