"""The endpoints of the console: everything it serves, in one tuple."""

from collections.abc import Sequence
from typing import Final

from rmqpy.console.api import (
    access,
    brokers,
    dead_letters,
    groups,
    half_messages,
    messages,
    overview,
    timers,
    topics,
)
from rmqpy.console.endpoints import Endpoint

#: The table of contents. Of two paths that fit a request the first one counts.
ENDPOINTS: Final[Sequence[Endpoint]] = (
    overview.overview,
    overview.overview_events,
    overview.health,
    topics.topics,
    topics.topic,
    topics.create_topic,
    topics.delete_topic,
    topics.topic_newest,
    topics.topic_tail,
    topics.send_message,
    groups.groups,
    groups.group,
    groups.group_stack,
    groups.preview_offsets,
    groups.reset_offsets,
    dead_letters.dead_letters,
    dead_letters.dead_letters_of,
    dead_letters.resend,
    messages.search,
    messages.by_key,
    messages.message,
    messages.trace,
    timers.timers,
    half_messages.half_messages,
    half_messages.check_half_message,
    brokers.clients,
    brokers.brokers,
    brokers.broker,
    brokers.update_settings,
    brokers.replicas,
    access.users,
    access.create_user,
    access.update_user,
    access.delete_user,
    access.rules,
    access.set_rule,
    access.delete_rule,
    access.check_access,
)
