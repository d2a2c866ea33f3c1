"""Characters that a terminal takes for commands, or that turn the direction of text: written as escapes.

Names, properties and errors may come from anybody who sends messages. Pure.
"""

import re
from typing import Final

#: What JSON leaves as it is: controls beyond ASCII's first 32, line separators, marks of direction, halves of a
#: surrogate pair.
_IN_JSON: Final = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable_text(text: str) -> str:
    """The text as a line for a terminal: what cannot be printed becomes Python's escapes.

    >>> printable_text("a\\x1b[2Jb\\u202ec")
    'a\\\\x1b[2Jb\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def escaped_json(text: str) -> str:
    """JSON that can be printed: the same values, with escapes for what `json` leaves as it is.

    >>> escaped_json('{"name": "a\\x9bb\\u202e"}')
    '{"name": "a\\\\u009bb\\\\u202e"}'
    """
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
