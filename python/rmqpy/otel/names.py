"""Names of OpenTelemetry's conventions for messaging and for RocketMQ.

The conventions are in development. Names are written here because packages of conventions lag behind the text.
"""

from typing import Final

SYSTEM: Final = "messaging.system"
#: Its value.
ROCKETMQ: Final = "rocketmq"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
#: Values of both, for a producer, a pull consumer and a push consumer.
SEND: Final = "send"
RECEIVE: Final = "receive"
PROCESS: Final = "process"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
ERROR_TYPE: Final = "error.type"

NAMESPACE: Final = "rocketmq.namespace"
CONSUMPTION_MODEL: Final = "rocketmq.consumption_model"
MESSAGE_KEYS: Final = "rocketmq.message.keys"
MESSAGE_TAG: Final = "rocketmq.message.tag"
#: `normal`, `fifo`, `delay` or `transaction`.
MESSAGE_TYPE: Final = "rocketmq.message.type"
#: The sharding key, common to ordered messages.
MESSAGE_GROUP: Final = "rocketmq.message.group"
DELAY_LEVEL: Final = "rocketmq.message.delay_time_level"
#: In milliseconds.
DELIVERY_TIMESTAMP: Final = "rocketmq.message.delivery_timestamp"

OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
#: Seconds, for both durations.
DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
