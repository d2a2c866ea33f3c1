"""Findings: problems of a server or a pair of brokers, with a remedy, in the same words everywhere.

Used by server logs, refused starts, `/readyz`, the command line, `doctor` and the console. Each function takes facts
that both sides of the wire have. Pure; any thread.
"""

from rmqpy.findings.disk import (
    FREE_BYTES_MIN,
    OldestFile,
    make_room,
    no_room,
    read_only,
    tiered_storage,
    undelivered,
)
from rmqpy.findings.finding import Finding, Trouble
from rmqpy.findings.groups import (
    consumption_disabled,
    given_up,
    hot_queue,
    no_consumer,
    slow_members,
    subscriptions_differ,
    waiting_queue,
)
from rmqpy.findings.next_steps import Step, steps
from rmqpy.findings.replicas import (
    diverged,
    duplicate,
    empty_master,
    few_copies,
    few_slaves,
    headless,
    no_master,
    no_ticket,
    not_back,
    not_following,
    replaced,
    silent_slave,
    slow,
    weaker_promise,
    without_role,
)
from rmqpy.findings.servers import cannot_listen, gone, not_writable

__all__ = [
    "FREE_BYTES_MIN",
    "Finding",
    "OldestFile",
    "Step",
    "Trouble",
    "cannot_listen",
    "consumption_disabled",
    "diverged",
    "duplicate",
    "empty_master",
    "few_copies",
    "few_slaves",
    "given_up",
    "gone",
    "headless",
    "hot_queue",
    "make_room",
    "no_consumer",
    "no_master",
    "no_room",
    "no_ticket",
    "not_back",
    "not_following",
    "not_writable",
    "read_only",
    "replaced",
    "silent_slave",
    "slow",
    "slow_members",
    "steps",
    "subscriptions_differ",
    "tiered_storage",
    "undelivered",
    "waiting_queue",
    "weaker_promise",
    "without_role",
]
