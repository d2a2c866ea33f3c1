"""kombu transport: Celery, and other programs on kombu, with RocketMQ as their broker.

Importing this module registers the URL schemes `rocketmq` and `rocketmqs` (TLS). kombu imports it by itself: its entry
point for serializers names `SERIALIZER`, which is JSON under another name. Imports no client until a URL is used.
"""

from typing import Final

from kombu.transport import TRANSPORT_ALIASES
from kombu.utils.json import dumps, loads

#: Arguments of `kombu.serialization.register`, which kombu calls with each entry point of `kombu.serializers`.
SERIALIZER: Final = (dumps, loads, "application/x-rocketmq-json", "utf-8")

TRANSPORT_ALIASES.update(dict.fromkeys(("rocketmq", "rocketmqs"), f"{__name__}.transport:Transport"))
