"""Schemas by id from a registry with Confluent's interface.

A schema never changes under its id, nor under its subject and version, so a process asks once. Any thread.
"""

import base64
import binascii
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from typing import Any, Final

from rmqpy.errors import ConfigError, ConnectError

_TIMEOUT_S: Final = 10.0
#: Schemas kept in a process.
_KEPT_MAX: Final = 1024
_lock = threading.Lock()
_known: "OrderedDict[tuple[str, str], dict[str, Any]]" = OrderedDict()
#: Schemas that a schema refers to, directly or not.
_REFERENCES_MAX: Final = 256
#: Asks for Protobuf's descriptors instead of the source text.
_SERIALIZED: Final = "?format=serialized"


def schema_of(registry: str, schema_id: int) -> tuple[str, str]:
    """Return the kind of a schema, such as AVRO, and its text. Raises `ConfigError` if the registry has none with
    this id, and `ConnectError` if it does not answer."""
    found = _asked(registry, f"/schemas/ids/{schema_id}", f"schema {schema_id}")
    return _kind(found), str(found["schema"])


def descriptors_of(registry: str, schema_id: int) -> tuple[str, bytes, str]:
    """Return the kind of a schema, its files as a descriptor set if it is of Protobuf, and the name of the
    file of the schema itself. Raises as `schema_of`."""
    found = _asked(registry, f"/schemas/ids/{schema_id}{_SERIALIZED}", f"schema {schema_id}")
    if _kind(found) != "PROTOBUF":
        return _kind(found), b"", ""
    from rmqpy.bodies.protobuf_schema import descriptor_set

    own = f"schema-{schema_id}.proto"
    files = {own: _file(registry, found)}
    left = list(found.get("references") or ())
    while left:
        each = left.pop()
        name = str(each["name"])
        if name in files:
            continue
        if len(files) > _REFERENCES_MAX:
            raise ConfigError(f"schema {schema_id} refers to more than {_REFERENCES_MAX} schemas")
        subject, version = urllib.parse.quote(str(each["subject"]), safe=""), int(each["version"])
        path = f"/subjects/{subject}/versions/{version}{_SERIALIZED}"
        other = _asked(registry, path, f"version {version} of subject {each['subject']}")
        files[name] = _file(registry, other)
        left += other.get("references") or ()
    return "PROTOBUF", descriptor_set(files), own


def _kind(found: dict[str, Any]) -> str:
    return str(found.get("schemaType") or "AVRO")


def _file(registry: str, found: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(str(found["schema"]), validate=True)
    except binascii.Error:
        raise ConfigError(
            f"the schema registry {registry} returns the text of Protobuf schemas, and not descriptors",
            hint="give a descriptor file and the name of the message",
        ) from None


def _asked(registry: str, path: str, what: str) -> dict[str, Any]:
    key = (registry, path)
    with _lock:
        if (known := _known.get(key)) is not None:
            return known
    if not registry.startswith(("http://", "https://")):
        raise ConfigError(f"the schema registry {registry!r} is not an address such as http://registry:8081")
    try:
        with urllib.request.urlopen(registry.rstrip("/") + path, timeout=_TIMEOUT_S) as reply:
            found = json.load(reply)
        if not isinstance(found, dict) or "schema" not in found:
            raise ValueError("the reply is not a schema")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise ConfigError(f"the schema registry {registry} has no {what}") from None
        raise ConnectError(f"the schema registry {registry} answers {error.code}: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise ConnectError(f"the schema registry {registry} does not answer: {error}") from None
    with _lock:
        _known[key] = found
        while len(_known) > _KEPT_MAX:
            _known.popitem(last=False)
    return found
