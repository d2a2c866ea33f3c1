"""OpenAPI document of the console's API, generated from the declarations of its routes. Pure."""

from collections.abc import Sequence
from typing import Any

from rmqpy import __version__
from rmqpy.console.endpoints import PAGE_ROWS_MAX, Endpoint
from rmqpy.console.guard import CHANGE_HEADER
from rmqpy.console.schema import Json, Schemas, schema_of

_ERROR: Json = {
    "type": "object",
    "description": "The error.",
    "properties": {
        "error": {"type": "string", "description": "The problem, in a sentence."},
        "hint": {"type": ["string", "null"], "description": "The remedy."},
        "kind": {"type": "string", "description": "The class of the error, as in rmqpy.errors."},
    },
    "required": ["error", "hint", "kind"],
}


def document(endpoints: Sequence[Endpoint]) -> Json:
    """OpenAPI 3.1 of these endpoints."""
    schemas: Schemas = {"Error": _ERROR}
    paths: dict[str, Json] = {}
    for each in endpoints:
        path = each.path.replace(":path}", "}")
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rmqpy console",
            "version": __version__,
            "description": "The operations of rmqpy.Admin as JSON. Changes must be allowed at the "
            f"start, and need the header {CHANGE_HEADER}.",
        },
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(endpoint: Endpoint, schemas: Schemas) -> Json:
    result = endpoint.hints["return"]
    content = "text/event-stream" if endpoint.kind == "events" else "application/json"
    if endpoint.kind == "rows":
        schema = _page(schema_of(endpoint.row, schemas))
    else:
        schema = schema_of(endpoint.row if endpoint.kind == "events" else result, schemas)
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema_of(endpoint.hints[name], schemas)}
        for name in endpoint.in_path
    ]
    found: Json = {
        "operationId": endpoint.work.__name__,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {content: {"schema": schema}}},
            "default": {
                "description": "Not done.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if endpoint.kind == "change":
        parameters.append(
            {"name": CHANGE_HEADER, "in": "header", "required": True, "schema": {"const": "change"}}
        )
        body = {
            "type": "object",
            "properties": {name: schema_of(kind, schemas) for name, kind in endpoint.parameters.items()},
            "required": [name for name in endpoint.parameters if name not in endpoint.defaults],
        }
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        return found
    for name, kind in endpoint.parameters.items():
        is_needed = name not in endpoint.defaults
        parameters.append(
            {"name": name, "in": "query", "required": is_needed, "schema": schema_of(kind, schemas)}
        )
    if endpoint.kind == "rows":
        parameters += _view(endpoint)
    return found


def _page(row: Json) -> Json:
    number = {"type": "integer"}
    return {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": row},
            "total": number,
            "page": number,
            "size": number,
        },
        "required": ["rows", "total", "page", "size"],
    }


def _view(endpoint: Endpoint) -> list[Json]:
    sort = f"A field of the rows, with - for descending order. Default: {endpoint.sort}."
    described: list[tuple[str, str, Any]] = [
        ("filter", "A text that a row must contain.", {"type": "string"}),
        ("sort", sort, {"type": "string"}),
        ("page", "Page number, from 1.", {"type": "integer", "minimum": 1}),
        ("size", "Rows per page.", {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX}),
    ]
    return [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, text, schema in described
    ]
