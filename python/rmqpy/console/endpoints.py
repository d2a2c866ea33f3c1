"""Declarations of API endpoints: a coroutine over an `AsyncAdmin` and its path, for routes and OpenAPI.

Parameters of the coroutine come from the path if its template names them, otherwise from the query, or for changes
from the body; their types check them. Pure.
"""

import functools
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_type_hints

from rmqpy.admin.connection import Missing
from rmqpy.config.keys import nearest
from rmqpy.console.request_body import SHORT_BYTES_MAX
from rmqpy.console.schema import Between, fields_of, from_text, quoted, record_arguments
from rmqpy.errors import ConfigError

Method = Literal["GET", "POST", "DELETE"]
#: A value; rows that are filtered, sorted and paged; an endless stream of events; a change.
Kind = Literal["value", "rows", "events", "change"]

PAGE_ROWS_MAX: Final = 500
_PAGE_ROWS: Final = 50
_PAGES_MAX: Final = 1 << 31
_IN_PATH: Final = re.compile(r"{(\w+)(?::path)?}")


#: Completes the rows of one page, given the arguments of the list, with data too slow to get for all.
Complete = Callable[..., Awaitable[list[Any]]]


class Page(NamedTuple):
    """One page of rows."""

    rows: list[Any]
    #: The number over all pages, after filtering.
    total: int
    page: int
    size: int
    #: Unreachable brokers, whose part of the list is missing.
    missing: list[Missing]


class View(NamedTuple):
    """Selection of rows."""

    filter: str | None
    sort: str | None
    page: int
    size: int


#: Parameters of every endpoint of rows.
_VIEW: Final[Mapping[str, Any]] = {"filter": str, "sort": str, "page": int, "size": int}


@dataclass(frozen=True, eq=False)
class Endpoint:
    """One path of the API."""

    method: Method
    path: str
    kind: Kind
    work: Callable[..., Any]
    #: The default sort field; a leading `-` reverses the order.
    sort: str = ""
    complete: Complete | None = None
    #: Makes rows with the default sort field alone, which `complete` completes: the first view of a long list.
    brief: Callable[..., Any] | None = None
    #: Whether a value may be some seconds old, like rows.
    is_remembered: bool = False
    #: The most bytes of the body of a change.
    body_bytes_max: int = SHORT_BYTES_MAX

    @property
    def summary(self) -> str:
        """Its purpose in a sentence."""
        return " ".join((self.work.__doc__ or "").partition("\n\n")[0].split())

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Types of its parameters, and of the result as `return`."""
        hints = get_type_hints(self.work, include_extras=True)
        return {name: hints[name] for name in list(inspect.signature(self.work).parameters)[1:]} | {
            "return": hints["return"]
        }

    @functools.cached_property
    def in_path(self) -> tuple[str, ...]:
        """Parameters in the path."""
        return tuple(_IN_PATH.findall(self.path))

    @functools.cached_property
    def parameters(self) -> dict[str, Any]:
        """The other parameters, by name."""
        return {name: kind for name, kind in self.hints.items() if name not in (*self.in_path, "return")}

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Those with defaults."""
        found = inspect.signature(self.work).parameters.values()
        return {each.name: each.default for each in found if each.default is not inspect.Parameter.empty}

    @property
    def row(self) -> Any:
        """The type of its rows."""
        return get_args(self.hints["return"])[0]

    def read_path(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The arguments in a path."""
        return {name: from_text(self.hints[name], given[name], name) for name in self.in_path}

    def read_query(self, given: Mapping[str, str]) -> tuple[dict[str, Any], View]:
        """The arguments in a query. Raises `ConfigError` for unknown or missing ones."""
        known = {**self.parameters, **(_VIEW if self.kind == "rows" else {})}
        for name in given:
            if name not in known:
                meant = nearest(name, known)
                raise ConfigError(
                    f"unknown parameter {quoted(name)}",
                    hint=f"did you mean {meant!r}?"
                    if meant
                    else f"known parameters: {', '.join(known) or 'none'}",
                )
        for name in self.parameters:
            if name not in given and name not in self.defaults:
                raise ConfigError(f"the parameter {name} is missing")
        arguments = {
            name: from_text(self.parameters[name], text, name)
            for name, text in given.items()
            if name in self.parameters and name not in (_VIEW if self.kind == "rows" else ())
        }
        return arguments, self._view(given)

    def read_body(self, given: Any) -> dict[str, Any]:
        """The arguments in the body of a change. Raises `ConfigError` for unknown or missing ones."""
        if not isinstance(given, dict):
            raise ConfigError("the body must be a JSON object")
        return record_arguments(self.parameters, self.defaults, given)

    def _view(self, given: Mapping[str, str]) -> View:
        def number(name: str, most: int, otherwise: int) -> int:
            text = given.get(name)
            return otherwise if text is None else from_text(Annotated[int, Between(1, most)], text, name)

        size, page = number("size", PAGE_ROWS_MAX, _PAGE_ROWS), number("page", _PAGES_MAX, 1)
        return View(given.get("filter") or None, given.get("sort") or None, page, size)


def needs_only_default(endpoint: Endpoint, view: View) -> bool:
    """Whether the default sort field alone determines the rows of a page."""
    return not view.filter and (view.sort or endpoint.sort).removeprefix("-") == endpoint.sort.removeprefix(
        "-"
    )


def page_of(endpoint: Endpoint, rows: Sequence[Any], missing: Sequence[Missing], view: View) -> Page:
    """Select rows that contain the text, sorted by a field. Raises `ConfigError`."""
    chosen = list(rows)
    if view.filter:
        wanted = view.filter.casefold()
        chosen = [row for row in chosen if any(wanted in text.casefold() for text in _texts(row))]
    order = view.sort or endpoint.sort
    if order:
        name, descending = order.removeprefix("-"), order.startswith("-")
        shown = fields_of(endpoint.row)
        if name not in shown:
            raise ConfigError(f"cannot sort by {quoted(name)}; known fields:  {', '.join(shown)}")
        chosen.sort(key=lambda row: _sort_key(getattr(row, name)), reverse=descending)
    begin = (view.page - 1) * view.size
    return Page(chosen[begin : begin + view.size], len(chosen), view.page, view.size, list(missing))


def _texts(row: Any) -> list[str]:
    return [text for text in row if isinstance(text, str)]


def _sort_key(value: Any) -> tuple[int, Any]:
    """Numbers before texts, None before both."""
    if value is None:
        return (0, 0)
    if isinstance(value, bool | int | float):
        return (1, value)
    return (2, value.casefold() if isinstance(value, str) else str(value))


Work = Callable[..., Any]


def value(path: str, *, remembered: bool = False) -> Callable[[Work], Endpoint]:
    """Declare a value that is read."""
    return lambda work: Endpoint("GET", path, "value", work, is_remembered=remembered)


def rows(
    path: str, sort: str, complete: Complete | None = None, *, brief: Work | None = None
) -> Callable[[Work], Endpoint]:
    """Declare a list that is read in pages."""
    return lambda work: Endpoint("GET", path, "rows", work, sort, complete, brief)


def events(path: str) -> Callable[[Callable[..., AsyncIterator[Any]]], Endpoint]:
    """Declare an asynchronous iterator whose items are streamed."""
    return lambda work: Endpoint("GET", path, "events", work)


def change(
    method: Literal["POST", "DELETE"], path: str, *, body_bytes_max: int = SHORT_BYTES_MAX
) -> Callable[[Work], Endpoint]:
    """Declare a change."""
    return lambda work: Endpoint(method, path, "change", work, body_bytes_max=body_bytes_max)
