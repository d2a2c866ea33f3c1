"""Public exceptions of rmqpy.

Owns the tree below; the table from response codes to exceptions is in `protocol.refusals`. An exception keeps its facts
as attributes and names the next step in its text. Each can be pickled, to return from an executor process. The first
paragraph of a docstring says what happened, the rest what to do; the documentation has a page for each.

::

    RocketMQError(Exception)                 .code .remark .broker .topic .retriable .hint
    ├── ConfigError(ValueError)              a setting is missing, unknown or out of bounds
    ├── AddressError(OSError)                a server cannot listen where its settings say
    ├── ClosedError(RuntimeError)            the client, server or store is closed
    ├── ForkedError(RuntimeError)            the object was made before fork() and belongs to the parent
    ├── RequestTimeout(TimeoutError)         no reply in time; the server may still have acted
    ├── ConnectError(ConnectionError)        no connection, or it broke while a request was in flight
    ├── DecodeError(ValueError)              unreadable bytes or fields
    ├── RouteError                           no broker to send to
    │   ├── NameServerUnreachable            no name server answers
    │   ├── NoBrokerRegistered               name servers answer, but know no broker yet
    │   ├── TopicNotFound                    the topic does not exist
    │   └── NoWritableQueue                  the topic exists, but no queue accepts messages
    ├── TopicExists                          the topic to create exists
    ├── GroupExists                          the group to create exists
    ├── SendError                            .attempts: one per broker, in order
    │   ├── NotStored                        a broker received the message but could not store it
    │   ├── SendDenied(AuthError)            the sender may not send it
    │   ├── BufferFull                       the client's limit of unsent messages is reached
    │   └── MessageTooLarge(ValueError)
    ├── BrokerError                          a broker refused
    │   ├── FlowControl                      the broker is busy: wait and retry
    │   ├── AuthError(PermissionError)       credentials, or the permission of topic or broker
    │   ├── GroupNotFound                    the subscription group does not exist
    │   ├── MessageNotFound                  no message has this id
    │   ├── RecallError                      a timed message cannot be recalled
    │   ├── QueueLost                        another member of the group owns the queue now
    │   ├── DataLoss                         requested messages do not exist, or no longer
    │   ├── Unsupported                      this server does not support the request
    │   └── StoreError                       .path .position: the message store
    └── TransactionError                     the transaction cannot be ended this way
"""

from collections.abc import Sequence


class RocketMQError(Exception):
    """Base of all errors that rmqpy raises on purpose.

    `code` and `remark` come from a server's response, if any; `broker` is its name or address, `topic` the topic
    concerned. `retriable`: the same call may succeed later, or on another broker. `hint`: the next step, if there
    is one.
    """

    #: Defaults for the class.
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
    """A setting is missing, unknown or out of bounds.

    Correct the value that the text names; docs/settings.md lists the bounds of server settings. `rmqpy config
    validate broker.conf` checks a file before a start.
    """


class AddressError(RocketMQError, OSError):
    """A server cannot listen where its settings say, for instance because the port is in use.

    Stop the process that uses the port, or choose another `listenPort` or `bindAddress`. Port 0 picks a free one.
    `rmqpy doctor -c broker.conf` checks the ports before a start.
    """


class ClosedError(RocketMQError, RuntimeError):
    """The client, server or store was closed before this call.

    Create a new object, or close this one later: a client belongs to the whole program, not to one send.
    """


class ForkedError(RocketMQError, RuntimeError):
    """The object was made before `fork()`: its connections belong to the parent process.

    Create clients after the fork: in the worker's start hook of a web server, or in the initializer of a process
    pool.
    """

    hint = "create a new one in this process"


class RequestTimeout(RocketMQError, TimeoutError):
    """No reply in time. The server may have acted on the request nevertheless.

    Repeat what may be done twice. If it happens often, check the load and the disk of the broker with `rmqpy
    doctor`, then raise `request_timeout`, or `send_timeout` of the producer.
    """

    retriable = True


class ConnectError(RocketMQError, ConnectionError):
    """No connection could be made, or it broke while a request was in flight.

    Check that the server runs and that a firewall allows its port. A client outside a cluster or behind NAT may
    get an address that it cannot reach: docs/addresses.md explains listeners and `address_map`.
    """

    retriable = True


class DecodeError(RocketMQError, ValueError):
    """Unreadable bytes, text or fields.

    Check that the other end is a RocketMQ server or client. If it names a message, the producer wrote a body that
    its flags do not describe, or the record is damaged: `rmqpy store verify` checks a stopped store.
    """


class RouteError(RocketMQError):
    """No broker to send to, or to read from.

    Catch it for all causes below; each subclass names its own remedy.
    """


class NameServerUnreachable(RouteError):
    """None of the configured name servers answers.

    Check the addresses in `namesrv`, in `$NAMESRV_ADDR` or in the profile. Clients that know a route continue with
    it.
    """

    retriable = True
    hint = "check the addresses and that a name server runs there: rmqpy standalone, or rmqpy namesrv"


class NoBrokerRegistered(RouteError):
    """Name servers answer but know no broker: they or the brokers have just started. Topics may exist.

    Wait a few seconds and repeat the call. If it stays, `namesrvAddr` of the brokers names other name servers.
    """

    retriable = True
    hint = "wait some seconds for brokers to register; check their namesrvAddr"


class TopicNotFound(RouteError):
    """The topic does not exist.

    Create it, or correct its name. A send creates a topic only if the broker has `autoCreateTopicEnable=true`, the
    default; a consumer never creates one.
    """

    hint = "create it: rmqpy topic create NAME"


class NoWritableQueue(RouteError):
    """The topic exists, but none of its queues accepts messages.

    Give the topic write permission with `rmqpy topic alter NAME --perm RW`, or start the master of its broker: a
    slave takes no messages.
    """

    hint = "check its permissions and brokers: rmqpy topic describe NAME"


class TopicExists(RocketMQError):
    """The topic to create exists already. Nothing was changed.

    Pass `exist_ok=True`, or `--if-not-exists` on the command line, if the existing topic will do.
    """

    hint = "change it: rmqpy topic alter NAME"


class GroupExists(RocketMQError):
    """The subscription group to create exists already. Nothing was changed.

    Pass `exist_ok=True`, or `--if-not-exists` on the command line, if the existing group will do.
    """

    hint = "change it: rmqpy group alter NAME"


class SendError(RocketMQError):
    """A message was not sent.

    Read `attempts`: it has the answer of each broker. Repeat the send if `retriable` is true; the message may then
    be stored twice, because a broker can store it and lose its reply.
    """

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
    """A broker received the message but could not store it: a problem of disk, memory or replicas.

    Check the broker's disk and replicas with `rmqpy doctor`. Repeat the send after a pause.
    """

    retriable = True


class BufferFull(SendError):
    """The client's limit of messages in flight is reached.

    Wait for the results of earlier sends, or let the producer wait: `when_full="wait"` is the default.
    """

    retriable = True
    hint = "send more slowly, or raise max_in_flight or max_buffered_bytes"


class MessageTooLarge(SendError, ValueError):
    """The message exceeds the limit of brokers, 4 MiB by default.

    Store the payload elsewhere and send its address, or raise `maxMessageSize` of the brokers and
    `max_message_size` of the producer.
    """


class BrokerError(RocketMQError):
    """A broker refused the request.

    Read `code` and `remark`, which come from the broker, and the broker's log.
    """


class FlowControl(BrokerError):
    """The broker is busy and protects itself.

    Repeat the call after a growing pause. If it lasts, add brokers or queues, or find the slow disk with `rmqpy
    doctor`. A user's own limits (`maxRequestsPerSecondPerUser`) give the same error.
    """

    retriable = True
    hint = "wait, then send more slowly"


class AuthError(BrokerError, PermissionError):
    """Credentials, or the permissions of a topic or broker, do not allow this.

    Check the access key and secret. `rmqpy acl check USER ACTION RESOURCE` names the rule that decides, and
    docs/security.md explains rules.
    """


class SendDenied(SendError, AuthError):
    """A broker refused the message because the sender may not send it.

    Allow it with `rmqpy acl rule set USER Topic:NAME Pub`, or give the topic write permission.
    """


class GroupNotFound(BrokerError):
    """The subscription group does not exist and this broker does not create groups on first use.

    Create the group, or set `autoCreateSubscriptionGroup=true` on the brokers.
    """

    hint = "create it: rmqpy group create NAME"


class MessageNotFound(BrokerError):
    """No message has this id or position: it never existed, or was deleted by retention.

    Pass the topic, too: the id that a producer makes needs it. Messages are deleted after `fileReservedTime`, 72
    hours by default.
    """


class RecallError(BrokerError):
    """A timed message cannot be recalled: it is too late, the handle is damaged, or of another topic or broker.

    Recall earlier: brokers accept a recall until the second in which the message is due. Store the handle as you
    got it.
    """


class QueueLost(BrokerError):
    """Another member of the group owns the queue now; uncommitted messages will be delivered again.

    Drop the messages of this queue and poll again: its new owner receives them. Queues change their owners when
    members join or leave.
    """


class DataLoss(BrokerError):
    """Requested messages do not exist: deleted by retention, or the topic was recreated.

    Decide whether the rest is enough: `fail_on_data_loss=False` (`failOnDataLoss` in Spark) reads it. To keep
    messages longer, raise `fileReservedTime` of the brokers.
    """

    hint = "read what is left with fail_on_data_loss=False"


class Unsupported(BrokerError):
    """This server does not support the request.

    Turn the feature on if the text names a setting, or use a server that has it. README lists the supported features.
    """


class StoreError(BrokerError):
    """The message store: a file is damaged, the disk failed, or another process holds the lock.

    Stop the other process if the store is locked. Otherwise check `path` with `rmqpy store verify`, and restore
    the file from a backup or a replica: docs/backup.md.
    """

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
        #: The file concerned, and the position in it, if known.
        self.path = path
        self.position = position


class TransactionError(RocketMQError):
    """The transaction is unknown, belongs to another group, or cannot be ended this way.

    With a `code` the broker has another decision, or does not know the half message. Without one the reply is
    missing: the broker asks `transaction_checker`, so let that decide.
    """
