"""Destructive commands: the question that each asks unless `--yes` is given.

The only list of them: `confirmed` and `confirm` use it.
"""

from collections.abc import Mapping
from typing import Final

#: Command → its question, filled in with parameters of the command or with facts it found.
QUESTIONS: Final[Mapping[str, str]] = {
    "topic alter": "Change topic {name!r} ({losses})?",
    "topic delete": "Delete topic {name!r} and its messages?",
    "group delete": "Delete the group {name!r} and its offsets?",
    "group reset": "Move the offsets of group {name!r} in {topic!r} by {by}?",
    "group skip": "Skip the backlog of group {name!r}, by {by}?",
    "group clone": "Replace the offsets of group {target!r} by those of {source!r}?",
    "cluster import": "Import {count} changes into the cluster?",
    "cluster promote": "Promote slave {broker_id} of {broker!r} and lose the messages that it lacks?",
    "dlq resend": "Resend dead letters ({count})?",
    "dlq purge": "Delete the dead letters of {group!r}?",
    "schedule delete": "Delete the schedule {name!r}?",
    "acl user delete": "Delete the user {name!r} and its policies?",
    "acl user update": "Disable the user {name!r} and refuse its requests?",
    "acl rule delete": "Delete {what} of the user {name!r}?",
}
