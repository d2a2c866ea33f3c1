"""Every exception a user of rmqpy can meet.

Owns the tree below; the table from response codes to it is in `protocol.refusals`. An exception keeps its facts as
attributes and says in its text what to do next; each can be pickled, so that it survives the way back from an executor
process.

::

    RocketMQError(Exception)                 .code .remark .broker .topic .retriable .hint
    ├── ConfigError(ValueError)              a setting is missing, unknown or out of bounds
    ├── AddressError(OSError)                a server cannot listen where its settings say
    ├── ClosedError(RuntimeError)            the client, server or store is closed
    ├── ForkedError(RuntimeError)            the object was made before fork() and belongs to the parent
    ├── RequestTimeout(TimeoutError)         no answer in time; the server may still have acted
    ├── ConnectError(ConnectionError)        no connection, or it broke while a request was under way
    ├── DecodeError(ValueError)              bytes or fields that cannot be understood
    ├── RouteError                           there is nowhere to send to
    │   ├── NameServerUnreachable            no name server answers
    │   ├── NoBrokerRegistered               name servers answer, and know no broker yet
    │   ├── TopicNotFound                    the topic does not exist
    │   └── NoWritableQueue                  the topic exists, none of its queues takes messages
    ├── TopicExists                          a topic that was to be made is there already
    ├── GroupExists                          the same of a subscription group
    ├── SendError                            .attempts: what was tried, in order
    │   ├── NotStored                        a broker took the message and could not keep it
    │   ├── SendDenied(AuthError)            its sender may not send it
    │   ├── BufferFull                       the client's own budget of unsent messages is used up
    │   └── MessageTooLarge(ValueError)
    ├── BrokerError                          a broker refused
    │   ├── FlowControl                      it is busy: wait and repeat
    │   ├── AuthError(PermissionError)       credentials, or the permission of topic or broker
    │   ├── GroupNotFound                    the subscription group does not exist
    │   ├── MessageNotFound                  no message has this id
    │   ├── RecallError                      a timed message is not taken back
    │   ├── QueueLost                        another member of the group owns the queue now
    │   ├── DataLoss                         messages that were asked for are not there, or not any more
    │   ├── Unsupported                      this server does not serve that request
    │   └── StoreError                       .path .position: the message store
    └── TransactionError                     the transaction cannot be ended this way
"""

from collections.abc import Sequence


class RocketMQError(Exception):
    """Base of everything rmqpy raises on purpose.

    `code` and `remark` are a server's answer, where one answered; `broker` is its name or address, `topic` what it
    was about. `retriable`: the same call may succeed later, or at another broker. `hint`: the next step, where there
    is one.
    """

    #: Defaults of a raised error of which the class alone is known.
    retriable: bool = False
    hint: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        remark: str | None = None,
        broker: str | None = None,
        topic: str | None = None,
        retriable: bool | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remark = remark
        self.broker = broker
        self.topic = topic
        if retriable is not None:
            self.retriable = retriable
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else ""
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(RocketMQError, ValueError):
    """A setting is missing, unknown or out of bounds."""


class AddressError(RocketMQError, OSError):
    """A server cannot listen where its settings say: the port is taken, say."""


class ClosedError(RocketMQError, RuntimeError):
    """The client, server or store was closed before this call."""


class ForkedError(RocketMQError, RuntimeError):
    """The object was made before `fork()`: its connections belong to the parent process."""

    hint = "make a new one in this process"


class RequestTimeout(RocketMQError, TimeoutError):
    """No answer in time. The server may have acted on the request all the same."""

    retriable = True


class ConnectError(RocketMQError, ConnectionError):
    """No connection could be made, or it broke while a request was under way."""

    retriable = True


class DecodeError(RocketMQError, ValueError):
    """Bytes, text or fields that cannot be understood."""


class RouteError(RocketMQError):
    """There is nowhere to send to, or to read from."""


class NameServerUnreachable(RouteError):
    """None of the configured name servers answers."""

    retriable = True
    hint = "check the addresses and that a name server runs there: rmqpy standalone, or rmqpy namesrv"


class NoBrokerRegistered(RouteError):
    """Name servers answer and know no broker: they have just started, or no broker has. Topics may exist."""

    retriable = True
    hint = "wait for brokers to register, which takes seconds; check namesrvAddr of their configuration"


class TopicNotFound(RouteError):
    """The topic does not exist."""

    hint = "create it: rmqpy topic create NAME"


class NoWritableQueue(RouteError):
    """The topic exists, but none of its queues takes messages."""

    hint = "look at its permissions and brokers: rmqpy topic describe NAME"


class TopicExists(RocketMQError):
    """A topic that was to be made exists already. Nothing was changed."""

    hint = "change it: rmqpy topic alter NAME"


class GroupExists(RocketMQError):
    """A subscription group that was to be made exists already. Nothing was changed."""

    hint = "change it: rmqpy group alter NAME"


class SendError(RocketMQError):
    """A message was not sent."""

    def __init__(
        self,
        message: str = "",
        *,
        attempts: Sequence[object] = (),
        code: int | None = None,
        remark: str | None = None,
        broker: str | None = None,
        topic: str | None = None,
        retriable: bool | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(
            message, code=code, remark=remark, broker=broker, topic=topic, retriable=retriable, hint=hint
        )
        #: The attempts in order: one entry per broker asked.
        self.attempts = tuple(attempts)


class NotStored(SendError):
    """A broker took the message and could not keep it: disk, memory or replica trouble."""

    retriable = True


class BufferFull(SendError):
    """The client's own budget of messages under way is used up."""

    retriable = True
    hint = "send slower, or raise max_in_flight or max_buffered_bytes"


class MessageTooLarge(SendError, ValueError):
    """The message exceeds what brokers take, 4 MiB unless they are configured otherwise."""


class BrokerError(RocketMQError):
    """A broker refused the request."""


class FlowControl(BrokerError):
    """The broker is busy and protects itself."""

    retriable = True
    hint = "wait and send again, slower"


class AuthError(BrokerError, PermissionError):
    """Credentials, or the permission of a topic or broker, do not allow this."""


class SendDenied(SendError, AuthError):
    """A broker did not take the message, for its sender may not send it."""


class GroupNotFound(BrokerError):
    """The subscription group does not exist and this broker does not create groups on first use."""

    hint = "create it: rmqpy group create NAME"


class MessageNotFound(BrokerError):
    """No message has this id or lies at this place: it never did, or retention took it."""


class RecallError(BrokerError):
    """A timed message is not taken back: it is too late, the handle is damaged, or of another topic or broker."""


class QueueLost(BrokerError):
    """Another member of the group owns the queue now; what it had not committed will be delivered again."""


class DataLoss(BrokerError):
    """Messages that were asked for are not there: retention took them, or the topic was made anew."""

    hint = "read what is left with fail_on_data_loss=False"


class Unsupported(BrokerError):
    """This server does not serve the request."""


class StoreError(BrokerError):
    """The message store: a file is damaged, the disk failed, or another process holds the lock."""

    def __init__(
        self,
        message: str = "",
        *,
        path: str | None = None,
        position: int | None = None,
        code: int | None = None,
        remark: str | None = None,
        broker: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, remark=remark, broker=broker, hint=hint)
        #: The file concerned, and where in it, when there is one.
        self.path = path
        self.position = position


class TransactionError(RocketMQError):
    """The transaction is unknown, belongs to another group, or cannot be ended this way."""
