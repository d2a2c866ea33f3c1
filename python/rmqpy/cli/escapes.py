"""Escapes for characters that control a terminal or change the direction of text.

Names, properties and errors may come from any client. Pure.
"""

import re
from typing import Final

#: Characters that JSON does not escape: controls beyond ASCII's first 32, line separators, direction marks, lone
#: surrogates.
_IN_JSON: Final = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable_text(text: str) -> str:
    """Return the text as one line for a terminal, with Python's escapes for unprintable characters.

    >>> printable_text("a\\x1b[2Jb\\u202ec")
    'a\\\\x1b[2Jb\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def escaped_json(text: str) -> str:
    """Return JSON that can be printed: the same values, with escapes for what `json` leaves as it is.

    >>> escaped_json('{"name": "a\\x9bb\\u202e"}')
    '{"name": "a\\\\u009bb\\\\u202e"}'
    """
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
