"""Messages as list rows and in full. Bodies are shown as text, or as hex if they are not text."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.console.bodies import BODIES, BodyView, masked
from rmqpy.errors import DecodeError

#: The most characters of a body in a list, and bytes of a body shown alone.
PREVIEW_CHARS: Final = 160
BODY_BYTES_MAX: Final = 256 << 10


class MessageRow(NamedTuple):
    """A message in a list."""

    topic: str
    broker: str
    queue_id: int
    offset: int
    #: The producer's id, and the broker's.
    message_id: str
    offset_message_id: str
    tag: str | None
    keys: list[str]
    stored_at: datetime
    born_host: str
    size: int
    #: The beginning of the body.
    preview: str


class MessageDetail(NamedTuple):
    """A message in full, with as much of its body as is shown."""

    row: MessageRow
    born_at: datetime
    store_host: str
    attempts: int
    properties: Mapping[str, str]
    #: The body as text; None if it is not text.
    text: str | None
    #: The body in base64, for the hex view and for saving it.
    base64: str
    #: Whether the body was truncated.
    is_cut: bool
    #: How the body is shown: whole, masked, hidden.
    body_view: BodyView
    fault: str | None


def row_of(message: ReceivedMessage) -> MessageRow:
    body, fault = _body(message)
    return MessageRow(
        message.topic,
        message.queue.broker,
        message.queue.queue_id,
        message.queue_offset,
        message.message_id,
        message.offset_message_id,
        message.tag,
        list(message.keys),
        message.stored_at,
        message.born_host,
        len(body),
        fault or shown_preview(body),
    )


def detail_of(message: ReceivedMessage) -> MessageDetail:
    """A message whole."""
    body, fault = _body(message)
    view = BODIES.get()
    shown = body[:BODY_BYTES_MAX]
    is_cut = len(shown) < len(body)
    text = _text(shown, is_cut=is_cut)
    if view is not BodyView.SHOWN:
        text = masked(text) if text is not None and view is BodyView.MASKED else None
        shown = (text or "").encode()
    return MessageDetail(
        row_of(message),
        message.born_at,
        message.store_host,
        message.delivery_attempt,
        message.properties,
        text,
        base64.b64encode(shown).decode("ascii"),
        is_cut,
        view,
        fault,
    )


def shown_preview(body: bytes) -> str:
    """The beginning of a body, as far as the user may see it."""
    view = BODIES.get()
    if view is BodyView.SHOWN:
        return preview(body)
    if view is BodyView.MASKED and (text := _text(body[:BODY_BYTES_MAX], is_cut=len(body) > BODY_BYTES_MAX)):
        return preview(masked(text).encode())
    return "(hidden)"


def preview(body: bytes) -> str:
    """The beginning of a body in one line; in hex if it is not text.

    >>> preview(b"two\\nlines"), preview(b"\\xff\\x00")
    ('two lines', 'ff 00')
    """
    piece = body[: 4 * PREVIEW_CHARS]
    text = _text(piece, is_cut=len(piece) < len(body))
    if text is None:
        return piece[: PREVIEW_CHARS // 3].hex(" ")
    return " ".join(text[:PREVIEW_CHARS].split())


def _text(body: bytes, *, is_cut: bool) -> str | None:
    """The body as text; a truncated one may have lost part of its last character."""
    for end in range(len(body), max(-1, len(body) - (4 if is_cut else 1)), -1):
        try:
            return body[:end].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def _body(message: ReceivedMessage) -> tuple[bytes, str | None]:
    try:
        return message.body, None
    except DecodeError as error:
        return b"", f"the body cannot be unpacked: {error}"
