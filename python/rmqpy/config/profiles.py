"""Profiles: names for the clusters a user works with, in one file.

::

    [profile.staging]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    timeout = 5.0
    namespace = "shop"
    access_key = "alice"
    secret_key = "…"
    tls = { ca = "/etc/rmqpy/ca.pem" }

`tls = true` trusts the authorities of the system.

Read only when a profile is asked for. The file is `$RMQPY_PROFILES`, else `rmqpy/profiles.toml` in the user's folder
for configuration.
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
    """Settings of a profile; None where it has none."""

    namesrv: str | None = None
    #: Time that one answer may take, in seconds.
    timeout: float | None = None
    #: Of the topics and groups.
    namespace: str | None = None
    #: The user that signs; the secret is not shown.
    access_key: str | None = None
    secret_key: str | None = None
    tls: TLS | None = None


def path() -> Path:
    """Path of the file, whether it is there or not. Raises `ConfigError` for a user without a home folder."""
    if given := os.environ.get("RMQPY_PROFILES"):
        return Path(given)
    folder = os.environ.get("XDG_CONFIG_HOME") or home.folder("profiles.toml") / ".config"
    return Path(folder) / "rmqpy" / "profiles.toml"


def load() -> dict[str, Profile]:
    """All profiles by name; none where there is no file. Raises `ConfigError` naming the file and what is wrong."""
    file = path()
    try:
        tables = tomllib.loads(text.decode(file.read_bytes())).get("profile", {})
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: profiles are tables: [profile.NAME]")
    return {name: _read(file, name, table) for name, table in tables.items()}


def get(name: str) -> Profile:
    """One profile. Raises `ConfigError` when there is none."""
    known = load()
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"no profile {name!r} in {path()}: there are {there}")
    return known[name]


def _read(file: Path, name: str, table: object) -> Profile:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: profile.{name} is no table")
    if unknown := table.keys() - set(Profile._fields):
        raise ConfigError(f"{file}: profile.{name} has unknown keys: {', '.join(sorted(unknown))}")
    namesrv, timeout = table.get("namesrv"), table.get("timeout")
    if not isinstance(namesrv, str | None):
        raise ConfigError(f"{file}: namesrv of profile.{name} must be text")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ConfigError(f"{file}: timeout of profile.{name} must be a number of seconds")
    namespace = table.get("namespace")
    if not isinstance(namespace, str | None):
        raise ConfigError(f"{file}: namespace of profile.{name} must be text")
    access_key, secret_key = table.get("access_key"), table.get("secret_key")
    if not isinstance(access_key, str | None) or not isinstance(secret_key, str | None):
        raise ConfigError(f"{file}: access_key and secret_key of profile.{name} must be text")
    if bool(access_key) != bool(secret_key):
        raise ConfigError(f"{file}: profile.{name} has one of access_key and secret_key alone")
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
