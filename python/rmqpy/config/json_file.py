"""JSON file of a proxy: an object of the same keys as properties."""

import json
from pathlib import Path

from rmqpy.config.keys import read_file
from rmqpy.errors import ConfigError


def read(path: str | Path | None) -> dict[str, str]:
    """Return the entries of a JSON object or of properties; empty without a path. Raises `ConfigError`."""
    if path is None:
        return {}
    try:
        text = Path(path).read_bytes().strip()
        if not text.startswith(b"{"):
            return read_file(path)
        found: dict[str, object] = json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return {wire: _text(value) for wire, value in found.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
