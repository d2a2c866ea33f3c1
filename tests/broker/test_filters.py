"""Filters of pulls: the bounds of tags in a subscription, and of waiting pulls compared with a message."""

import socket
from collections import Counter

import pytest

from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.clients import ConsumerData, HeartBeat, HeartbeatData, SubscriptionData
from rmqpy.server import Standalone
from wire import Frame

from .test_hot_path import exchange, pull_frame, send_frame
from .test_owed_replies import answers, connect, first_offset, parked_pull

TAGS_MAX = 1_000
#: Waiting pulls of one queue that a message is compared with.
COMPARED_MAX = 4_096


def tags(count: int) -> str:
    return "||".join(f"t{index}" for index in range(count))


def tagged_send(tag: str) -> bytes:
    frame = Frame.unpack(send_frame()[4:])
    assert frame.ext is not None
    frame.ext["i"] = f"TAGS\x01{tag}\x02"
    return frame.pack()


def parked(server: Standalone, peer: socket.socket, count: int, subscription: str) -> None:
    """As many pulls on this connection that wait for a message with one of these tags."""
    offset = first_offset(server)
    pulls = [parked_pull(offset, opaque, subscription=subscription) for opaque in range(count)]
    marker = Frame(30, opaque=-1, ext={"topic": "hot", "queueId": "0"})
    # One connection is served in order: after this answer all of them are parked.
    assert Frame.unpack(exchange(peer, b"".join(pulls) + marker.pack(), 1)[0]).opaque == -1


def test_a_pull_with_too_many_tags_is_refused_with_the_reason(server: Standalone) -> None:
    first_offset(server)
    with connect(server) as peer:
        for count, expected in [(TAGS_MAX, 20), (TAGS_MAX + 1, 23), (20_000, 23)]:
            pull = Frame.unpack(pull_frame(0)[4:])
            assert pull.ext is not None
            pull.ext["subscription"] = tags(count)
            answer = Frame.unpack(exchange(peer, pull.pack(), 1)[0])
            assert answer.code == expected, answer.remark
            if expected == 23:
                assert answer.remark is not None
                assert "more than 1000 tags" in answer.remark


def test_a_registered_subscription_with_too_many_tags_is_refused_with_the_reason(server: Standalone) -> None:
    first_offset(server)
    with connect(server) as peer:
        subscription = SubscriptionData(topic="hot", sub_string=tags(TAGS_MAX + 1), sub_version=1)
        member = ConsumerData(group_name="readers", subscription_data_set=[subscription])
        beat = HeartBeat(body=HeartbeatData(client_id="many-tags", consumer_data_set=[member]))
        body = encode(beat).body or b""
        # Its answer, and the notice that the group has a member.
        both = [Frame.unpack(answer) for answer in exchange(peer, Frame(34, ext={}, body=body).pack(), 2)]
        assert {frame.code for frame in both} == {0, 40}
        pull = Frame.unpack(pull_frame(0)[4:])
        assert pull.ext is not None
        pull.ext["sysFlag"] = "0"
        answer = Frame.unpack(exchange(peer, pull.pack(), 1)[0])
    assert (answer.code, "more than 1000 tags" in (answer.remark or "")) == (23, True)


@pytest.mark.parametrize("subscription", ["other", tags(TAGS_MAX)])
def test_pulls_for_other_tags_are_not_woken(server: Standalone, subscription: str) -> None:
    with connect(server) as waiting, connect(server) as producer:
        parked(server, waiting, 100, subscription)
        exchange(producer, tagged_send("wanted"), 1)
        exchange(producer, tagged_send(subscription.rpartition("|")[2]), 1)
        found = answers(waiting, 100)
    # Each is answered by the second message: the first one does not match and is passed over.
    assert Counter(frame.code for frame in found) == {0: 100}
    assert all(b"TAGS\x01" + subscription.rpartition("|")[2].encode() in frame.body for frame in found)
    assert not any(b"wanted" in frame.body for frame in found)


def test_many_waiting_pulls_are_woken_without_comparing_tags(server: Standalone) -> None:
    with connect(server) as waiting, connect(server) as producer:
        parked(server, waiting, COMPARED_MAX + 1, "other")
        exchange(producer, tagged_send("wanted"), 1)
        found = answers(waiting, COMPARED_MAX + 1)
    assert Counter(frame.code for frame in found) == {20: COMPARED_MAX + 1}
