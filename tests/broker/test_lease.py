"""Lease of a master: its end, from grants, withdrawals and releases."""

from rmqpy.control.election.lease import Lease


def test_without_a_grant_no_lease_is_needed() -> None:
    assert Lease().end is None


def test_a_lease_counts_from_the_moment_the_heartbeat_was_sent() -> None:
    lease = Lease()
    assert lease.granted(sent_at=100.0, millis=1_500)
    assert lease.end == 101.5


def test_a_late_answer_does_not_shorten_a_lease() -> None:
    lease = Lease()
    lease.granted(sent_at=100.0, millis=1_500)
    assert not lease.granted(sent_at=99.0, millis=1_500)
    assert lease.end == 101.5


def test_a_withdrawn_lease_ends_and_is_still_needed() -> None:
    lease = Lease()
    lease.granted(sent_at=100.0, millis=1_500)
    lease.withdrawn()
    assert lease.end == 0.0


def test_answers_to_heartbeats_before_the_release_do_not_renew_it() -> None:
    lease = Lease()
    lease.granted(sent_at=100.0, millis=1_500)
    lease.released(now=100.5)
    assert not lease.granted(sent_at=100.4, millis=1_500)
    assert lease.end == 0.0
    assert lease.granted(sent_at=100.6, millis=1_500)
    assert lease.end == 102.1
