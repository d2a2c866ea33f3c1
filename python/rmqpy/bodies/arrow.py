"""The optional import of pyarrow, with an error that names the extra."""

from importlib import import_module
from typing import Any

from rmqpy.errors import ConfigError


def need(module: str, extra: str, user: str) -> Any:
    """Return an optional module. Raises `ConfigError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ConfigError(
            f"{user} needs {package}: {error}", hint=f"run: pip install 'rmqpy[{extra}]'"
        ) from None


def pyarrow(user: str) -> Any:
    """Return pyarrow for a `user`, such as "bodies as JSON"."""
    return need("pyarrow", "arrow", user)
