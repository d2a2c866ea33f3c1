"""Configuration of plug-ins: keys of `broker.conf`."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError

#: The most plug-ins of a broker: each has a thread or two.
PLUGINS_MAX: Final = 32
#: Names are also those of files.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginsConfig(Settings):
    """The plug-ins to load."""

    plugins: str = key(
        "plugins",
        "",
        "Plug-ins to load at the start, such as `audit,search`: names of entry points in the group rmqpy.plugins; "
        "empty: none. See plugins.md. Apache's broker has no such key.",
    )
    file: str = key(
        "pluginsFile",
        "",
        "TOML file with the options of plug-ins, a table for each; empty: no options. Apache's broker has no such key.",
    )

    @property
    def names(self) -> list[str]:
        """The names of the plug-ins."""
        return [name for part in self.plugins.split(",") if (name := part.strip())]

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.names
        for name in names:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"plugins={self.plugins}: {name!r} is not the name of a plug-in: up to 64 letters, digits, '_', "
                    "'.' and '-'"
                )
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"plugins={self.plugins}: {', '.join(doubled)} is named more than once")
        if len(names) > PLUGINS_MAX:
            raise ConfigError(f"plugins: {len(names)} plug-ins are named, and {PLUGINS_MAX} are the most")
