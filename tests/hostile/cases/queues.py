"""Pulls, commits and queries with unknown queues, offsets out of range, and invalid expressions."""

from collections.abc import Iterator

from hostile.cases.case import QUEUES, QUIET_TOPIC, TOPIC, Case, offset, pull, request, reset
from rmqpy.protocol.codes import RequestCode as Code
from wire import ONEWAY, Frame


def pulls() -> Iterator[Case]:
    fields = {
        "unknown topic": (17, {"topic": "hostile-unknown"}),
        "queue beyond the last": (29, {"queueId": str(QUEUES)}),
        "offset below the first": (21, {"queueOffset": "-1"}),
        "offset far behind the last": (21, {"queueOffset": "9000000000000000000"}),
        "unknown expression type": (23, {"expressionType": "REGEX", "subscription": "(a+)+$"}),
        "SQL nested deeply": (
            23,
            {"expressionType": "SQL92", "subscription": "(" * 10_000 + "a=1" + ")" * 10_000},
        ),
        "SQL of 200 kB": (23, {"expressionType": "SQL92", "subscription": "a=1 OR " * 30_000 + "a=1"}),
        "unknown group": (0, {"consumerGroup": "nobody-at-all"}),
        "all flags": (0, {"sysFlag": "2147483647", "commitOffset": "-1"}),
        "a thousand tags": (20, {"subscription": "||".join(f"t{n}" for n in range(1_000))}),
        "one tag more than a thousand": (
            23,
            {"subscription": "||".join(f"t{n}" for n in range(1_001))},
        ),
        "ten thousand tags": (23, {"subscription": "||".join(f"t{n}" for n in range(10_000))}),
        "separators without tags": (0, {"subscription": "|" * 100_000}),
        "a tag of 100 kB": (20, {"subscription": "t" * 100_000}),
    }
    for what, (end, changes) in fields.items():
        yield request(f"pull: {what}", end, Frame(Code.PULL_MESSAGE, ext=pull(**changes)))
    # Without messages it waits, as long as it asks within bounds, and blocks no other.
    forever = pull(topic=QUIET_TOPIC, sysFlag="6", suspendTimeoutMillis="9223372036854775807")
    yield request("pull: held for ever", "ignored", Frame(Code.PULL_MESSAGE, ext=forever))


def commits() -> Iterator[Case]:
    fields = {
        "unknown topic": (17, {"topic": "hostile-unknown"}),
        "unknown group": (26, {"consumerGroup": "hostile-nobody"}),
        "queue beyond the last": (29, {"queueId": str(QUEUES)}),
        "negative queue": (29, {"queueId": "-5"}),
        "negative offset": (29, {"commitOffset": "-1"}),
        "beyond 63 bits": (29, {"commitOffset": str(2**63)}),
        "beyond 64 bits": (29, {"commitOffset": "9" * 30}),
    }
    for what, (end, changes) in fields.items():
        yield request(f"commit: {what}", end, Frame(Code.UPDATE_CONSUMER_OFFSET, ext=offset(**changes)))
        oneway = Frame(Code.UPDATE_CONSUMER_OFFSET, ext=offset(**changes), flag=ONEWAY)
        yield request(f"commit, one-way: {what}", "ignored", oneway)


def queries() -> Iterator[Case]:
    without_fields = {
        Code.PULL_MESSAGE: 26,
        Code.CONSUMER_SEND_MSG_BACK: 26,
        Code.QUERY_CONSUMER_OFFSET: 29,
        Code.UPDATE_CONSUMER_OFFSET: 29,
        Code.SEARCH_OFFSET_BY_TIMESTAMP: 1,
        Code.GET_MAX_OFFSET: 1,
        Code.QUERY_MESSAGE: 1,
        Code.VIEW_MESSAGE_BY_ID: 1,
        Code.UPDATE_AND_CREATE_TOPIC: 1,
        Code.INVOKE_BROKER_TO_RESET_OFFSET: 1,
    }
    for code, end in without_fields.items():
        yield request(f"{code.name.lower()}: no fields at all", end, Frame(code))
    positions = {"negative": "-1", "greatest": str(2**63 - 1), "inside a record": "13"}
    for what, position in positions.items():
        yield request(f"view by id: {what}", 1, Frame(Code.VIEW_MESSAGE_BY_ID, ext={"offset": position}))
        end = {"producerGroup": "p", "tranStateTableOffset": position, "commitLogOffset": position}
        end |= {"commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "x", "transactionId": "x"}
        oneway = Frame(Code.END_TRANSACTION, ext=end, flag=ONEWAY)
        yield request(f"end of transaction: {what}", "ignored", oneway)
    query = {"topic": TOPIC, "key": "k" * 30_000, "maxNum": "2147483647"}
    query |= {"beginTimestamp": str(2**63 - 1), "endTimestamp": str(-(2**63))}
    yield request("query: everything at once", 22, Frame(Code.QUERY_MESSAGE, ext=query))
    for what, queue_id in {"beyond the last": str(QUEUES), "beyond 32 bits": str(2**40)}.items():
        frame = Frame(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext=reset(queueId=queue_id))
        yield request(f"reset of a queue {what}", 29, frame)
        frame = Frame(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext=reset(queueId=queue_id, offset="0"))
        yield request(f"reset of a queue {what}, to an offset", 29, frame)
