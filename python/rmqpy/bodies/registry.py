"""Schemas by id from a registry with Confluent's interface.

A schema never changes under its id, so a process asks once. Any thread.
"""

import json
import threading
import urllib.error
import urllib.request
from collections import OrderedDict
from typing import Final

from rmqpy.errors import ConfigError, ConnectError

_TIMEOUT_S: Final = 10.0
#: Schemas kept in a process.
_KEPT_MAX: Final = 1024
_lock = threading.Lock()
_known: "OrderedDict[tuple[str, int], tuple[str, str]]" = OrderedDict()


def schema_of(registry: str, schema_id: int) -> tuple[str, str]:
    """Return the kind of a schema, such as AVRO, and its text. Raises `ConfigError` if the registry has none with
    this id, and `ConnectError` if it does not answer."""
    key = (registry, schema_id)
    with _lock:
        if (known := _known.get(key)) is not None:
            return known
    if not registry.startswith(("http://", "https://")):
        raise ConfigError(f"the schema registry {registry!r} is not an address such as http://registry:8081")
    address = f"{registry.rstrip('/')}/schemas/ids/{schema_id}"
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as reply:
            found = json.load(reply)
        schema = (str(found.get("schemaType") or "AVRO"), str(found["schema"]))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise ConfigError(f"the schema registry {registry} has no schema {schema_id}") from None
        raise ConnectError(f"the schema registry {registry} answers {error.code}: {error.reason}") from None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConnectError(f"the schema registry {registry} does not answer: {error}") from None
    with _lock:
        _known[key] = schema
        while len(_known) > _KEPT_MAX:
            _known.popitem(last=False)
    return schema
