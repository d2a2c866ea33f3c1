"""`-o template=TEXT`: a line for each record, with the names in braces filled in.

Names are the JSON keys of the same command; `{name:>10}` and the like are Python's, and `{properties[colour]}` picks
one of several. `\\t` and `\\n` are written as such, since a shell would interpret the real ones.
"""

import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

PREFIX = "template="


class OutputFormat(click.Choice):  # type: ignore[type-arg]  # Generic from click 8.2 on only.
    """One of a few words, or a template."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The allowed words, and the template form."""
        return f"[{'|'.join(self.choices)}|{PREFIX}TEXT]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is one of the words or a valid template."""
        if not value.startswith(PREFIX):
            if value not in self.choices:
                words = ", ".join(map(repr, self.choices))
                self.fail(f"{value!r} is not one of {words}, {PREFIX}TEXT", param, ctx)
            return value
        try:
            list(string.Formatter().parse(value))
        except ValueError as error:
            self.fail(f"{value!r} cannot be filled in: {error}", param, ctx)
        return value


def filled(template: str, records: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> Iterator[str]:
    """Fill in the lines. A record may lack one of `keys`; any other name is an error."""
    text = template.removeprefix(PREFIX).replace(r"\t", "\t").replace(r"\n", "\n")
    absent = dict.fromkeys(keys)
    filler = _Filler()
    for record in records:
        try:
            yield filler.vformat(text, (), absent | dict(record))
        except (ValueError, TypeError, AttributeError) as error:
            raise click.UsageError(f"the template {text!r} cannot be filled in: {error}") from None


def plain(value: object) -> str:
    """A value as text: names with `=`, several with commas, `-` for none."""
    if isinstance(value, Mapping):
        value = [f"{name}={text}" for name, text in value.items()]
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "-" if value is None else str(value)


class _Filler(string.Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        if key not in kwargs:
            raise click.UsageError(f"unknown name {str(key)!r}; known names: {', '.join(kwargs)}")
        return kwargs[key]

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (LookupError, TypeError):
            # A subscripted property, which this record may lack.
            return None, field_name

    def format_field(self, value: Any, format_spec: str) -> Any:
        if value is None:
            return ""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return super().format_field(value if is_number else plain(value), format_spec)
