"""Findings about the disk and the store of a broker."""

from typing import Final, NamedTuple

from rmqpy.findings.finding import Finding

#: With less free space a broker of rmqpy refuses messages, regardless of its settings.
FREE_BYTES_MIN: Final = 64 << 20


class OldestFile(NamedTuple):
    """The oldest file of a log, and the settings on which a remedy of a full disk depends."""

    #: The age of its newest message; `None` if it is the file being written, which is never deleted.
    age_s: float | None
    #: `fileReservedTime`.
    reserved_hours: int
    #: The usage from which expired files are deleted at any hour, from which unexpired ones are with
    #: `cleanFileForciblyEnable`, and from which messages are refused.
    expire_percent: int = 75
    force_percent: int = 85
    full_percent: int = 90
    file_bytes: int = 1 << 30


def no_room(
    name: str, folder: str, used_percent: float, free_bytes: int, oldest: OldestFile | None = None
) -> Finding:
    """A disk so full that messages are refused; the store's own event has the same words. `oldest` is unknown of
    brokers of other releases.

    >>> print(no_room("broker-a", "/data", 96.2, 12 << 20).found)
    /data: 96 % of its disk is in use, 12 MiB are free: messages are refused
    """
    limit = ""
    # The next file, too, needs room above the minimum.
    if (
        oldest is not None
        and oldest.full_percent <= used_percent
        and free_bytes >= FREE_BYTES_MIN + oldest.file_bytes
    ):
        limit = (
            f"; or raise the limit: with rmqpy config set {name} diskSpaceWarningLevelRatio=100 messages are accepted "
            f"until {FREE_BYTES_MIN >> 20} MiB are free"
        )
    return Finding(
        f"{folder}: {used_percent:.0f} % of its disk is in use, {free_bytes >> 20} MiB are free: messages are refused",
        f"{make_room(name, used_percent, oldest)}{limit}; messages are accepted again as soon as there is room",
    )


def make_room(name: str, used_percent: float, oldest: OldestFile | None = None) -> str:
    """Return the remedies of a full disk. Shorter retention is one only if it deletes a file.

    >>> print(make_room("broker-a", 96.0, OldestFile(31 * 3_600, 72)))
    delete other files there, or move the store to a larger disk; or shorten retention: rmqpy config set broker-a \
fileReservedTime=15 deletes files whose messages are older than 15 hours, and the oldest is 31 hours old
    >>> print(make_room("broker-a", 96.0, OldestFile(420, 72)))
    delete other files there, or move the store to a larger disk; the oldest file of the log is 7 min old, so shorter \
retention frees nothing, and neither does deleting a topic; rmqpy config set broker-a cleanFileForciblyEnable=true \
deletes the oldest messages
    """
    always = "delete other files there, or move the store to a larger disk"
    useless = "so shorter retention frees nothing, and neither does deleting a topic"
    shorter, percent = f"rmqpy config set {name} fileReservedTime", int(used_percent)
    if oldest is None:
        return (
            f"{always}; or shorten retention: {shorter}=24 deletes files whose messages are older than a day"
        )
    if oldest.age_s is None:
        return f"{always}; the log is one file, which is being written, {useless}"
    hours = int(oldest.age_s / 3_600)
    if hours >= oldest.reserved_hours:
        return f"{always}; expired files are deleted, except those with undelivered delayed, timed or half messages"
    if not hours:
        # On a small disk little is in use when the minimum is reached.
        ratio = f" diskSpaceCleanForciblyRatio={max(30, percent)}" if percent < oldest.force_percent else ""
        return (
            f"{always}; the oldest file of the log is {_age(oldest.age_s)} old, {useless}; rmqpy config set {name} "
            f"cleanFileForciblyEnable=true{ratio} deletes the oldest messages"
        )
    # Half of its age deletes about half of the log.
    kept = max(1, hours // 2)
    ratio = f" diskMaxUsedSpaceRatio={max(10, percent)}" if percent < oldest.expire_percent else ""
    return (
        f"{always}; or shorten retention: {shorter}={kept}{ratio} deletes files whose messages are older than "
        f"{_age(3_600 * kept)}, and the oldest is {_age(oldest.age_s)} old"
    )


def _age(seconds: float) -> str:
    for unit, size in (("hours", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}" if unit == "min" else f"{int(seconds / size)} {unit}"
    return f"{seconds:.0f} s"


def undelivered(count: int) -> Finding:
    """Delayed, timed and half messages dropped without delivery since the start.

    >>> print(undelivered(2).found)
    2 messages were not delivered when their time came
    """
    subject, whose = ("1 message was", "its") if count == 1 else (f"{count} messages were", "their")
    return Finding(
        f"{subject} not delivered when {whose} time came",
        "read its log for their ids and reasons; send them again, and restart it to reset the count",
    )


def read_only(reason: str) -> Finding:
    """A store that accepts no more writes until it is opened again."""
    return Finding(
        f"messages are refused, stored ones are served: {reason}",
        "check its disk and log, then restart the broker",
    )


def tiered_storage(fault: str, behind_bytes: int) -> Finding:
    """A tiered storage to which files of the log cannot be copied.

    >>> print(tiered_storage("cannot write s3://log/c/b/0.log: timeout", 3 << 30).found)
    files of the log cannot be copied to the tiered storage, 3072 MiB wait: cannot write s3://log/c/b/0.log: timeout
    """
    return Finding(
        f"files of the log cannot be copied to the tiered storage, {behind_bytes >> 20} MiB wait: {fault}",
        "check that the storage is reachable from the broker and that its credentials may write there; until then the "
        "files stay on the disk, and messages that are only there cannot be read",
    )
