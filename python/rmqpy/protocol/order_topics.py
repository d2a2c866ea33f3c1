"""Order topics: the fixed list of a topic's queues on name servers, and its format.

Producers use the list, so that a key keeps its queue while a broker is down.
"""

from collections.abc import Mapping
from typing import Final

#: The namespace of the lists; the key is the topic.
ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"


def with_queues(listed: str, queues: Mapping[str, int]) -> str:
    """Return the list with these numbers of queues for some brokers; others keep theirs.

    >>> with_queues("", {"broker-a": 4, "broker-b": 4})
    'broker-a:4;broker-b:4'
    >>> with_queues("broker-a:4;broker-b:4", {"broker-a": 2})
    'broker-a:2;broker-b:4'
    """
    known = dict(part.rsplit(":", 1) for part in listed.split(";") if ":" in part)
    return ";".join(f"{broker}:{count}" for broker, count in (known | dict(queues)).items())
