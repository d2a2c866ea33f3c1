"""Commands that destroy: what each takes away, as the question that it asks first unless `--yes` is given.

The one list of them: a command asks with `confirmed` or `confirm`, and both look here.
"""

from collections.abc import Mapping
from typing import Final

#: Command → its question, filled in with the command's parameters, or with facts that it has found.
QUESTIONS: Final[Mapping[str, str]] = {
    "topic alter": "Change topic {name!r} ({losses})?",
    "topic delete": "Delete topic {name!r} and its messages?",
    "group delete": "Delete the group {name!r} and its offsets?",
    "group reset": "Move the group {name!r} in {topic!r}, by {by}?",
    "group skip": "Let the group {name!r} skip its backlog, by {by}?",
    "group clone": "Move the group {target!r} to the offsets of {source!r}?",
    "cluster promote": "Let slave {broker_id} of {broker!r} lead although messages that it lacks are lost?",
    "dlq resend": "Send {count} messages again?",
    "dlq purge": "Delete the dead letters of {group!r}?",
    "acl user delete": "Delete the user {name!r} and its policies?",
    "acl user update": "Disable the user {name!r}, whose requests are refused from then on?",
    "acl rule delete": "Delete {what} of the user {name!r}?",
}
