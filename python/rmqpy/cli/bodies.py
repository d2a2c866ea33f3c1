"""Options of commands that decode bodies, as the arguments of `rmqpy.read_topic`."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from rmqpy.cli.options import EXISTING_FILE, options

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Words of `rmqpy.bodies.format`, which is imported when a command runs.
_FORMATS: Final = ("raw", "json", "csv", "avro", "protobuf")
_MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")


def body_options(command: _Command) -> _Command:
    """Add the options of bodies; `body_arguments` reads them."""
    return options(
        click.option(
            "--body-format",
            type=click.Choice(_FORMATS),
            default="raw",
            show_default=True,
            help="Format of bodies: the column body has their fields.",
        ),
        click.option(
            "--body-schema",
            metavar="FIELDS",
            help="Fields of bodies, 'id bigint, price double', or Avro's JSON. [default: sampled]",
        ),
        click.option(
            "--mode",
            type=click.Choice(_MODES, case_sensitive=False),
            default="PERMISSIVE",
            show_default=True,
            help="For a body that cannot be decoded: null and kept in _corrupt_body, dropped, or a failure.",
        ),
        click.option("--separator", default=",", help="Between fields of CSV. [default: a comma]"),
        click.option("--schema-registry", metavar="URL", help="Registry of the schemas of bodies."),
        click.option(
            "--descriptor-file",
            type=EXISTING_FILE,
            metavar="FILE",
            help="Descriptor set of Protobuf bodies, by protoc --include_imports --descriptor_set_out.",
        ),
        click.option(
            "--message-name", metavar="NAME", help="Message of the bodies in it. [default: the only one]"
        ),
    )(command)


def body_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Take the values of `body_options` out of a command's parameters."""
    names = (
        *("body_format", "body_schema", "mode", "separator", "schema_registry"),
        *("descriptor_file", "message_name"),
    )
    taken = {name: given.pop(name) for name in names}
    taken["infer_schema"] = taken["body_format"] in ("json", "csv") and taken["body_schema"] is None
    return taken
