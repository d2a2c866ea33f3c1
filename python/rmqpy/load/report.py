"""Presentation of the results of one load as a table."""

from collections.abc import Mapping
from typing import Any

Result = Mapping[str, Any]
"""The output of `rmqpy bench -o json`."""


def broker_cpu_us(result: Result) -> float | None:
    """Processor time of the brokers per message in microseconds; None if unknown."""
    spent = [seconds for seconds in result["cpu"]["watched_s"] if seconds is not None]
    if not spent or not result["messages"]:
        return None
    return float(sum(spent)) / int(result["messages"]) * 1e6


def shares(result: Result) -> dict[str, float | None]:
    """Processors in use during the measurement: by the load, the brokers, and others. 1.0 is one core."""
    cpu = result["cpu"]
    interval = cpu["interval_s"]
    spent = [seconds for seconds in cpu["watched_s"] if seconds is not None]
    load = cpu["own_s"] / interval
    brokers = sum(spent) / interval if spent else None
    others = None
    if cpu["machine_s"] is not None and brokers is not None:
        others = max(0.0, cpu["machine_s"] / interval - load - brokers)
    return {"load": load, "brokers": brokers, "others": others}


def summary(result: Result) -> dict[str, str]:
    """The results as rows of a table."""
    latency = result["latency_us"]
    rows = {
        "load": described(result["command"]),
        "throughput": f"{result['messages_per_s']:,.0f} msg/s, "
        f"{result['bytes'] / max(result['interval_s'], 1e-9) / 1e6:,.1f} MB/s",
        "measured": f"{result['messages']:,} messages in {result['interval_s']:.2f} s "
        f"({result['messages_total']:,} in all)",
    }
    if latency["samples"]:
        rows["latency"] = "  ".join(
            f"{name} {duration(latency[key])}"
            for name, key in (
                ("p50", "p50"),
                ("p90", "p90"),
                ("p99", "p99"),
                ("p99.9", "p999"),
                ("p99.99", "p9999"),
                ("max", "max"),
            )
        )
    if result["schedule"] is not None:
        schedule = result["schedule"]
        rows["schedule"] = (
            f"{schedule['rate']:,.0f} msg/s offered, {schedule['late']:,} sent late "
            f"(by {duration(schedule['lag_max_us'])} at most), {schedule['unsent']:,} never sent"
        )
    if "delivery" in result:
        delivery = result["delivery"]
        rows["delivery"] = (
            f"{delivery['messages_per_s']:,.0f} msg/s, all {delivery['messages']:,} within "
            f"{delivery['last_s']:.2f} s of the start of the second in which they were due"
        )
        if delivery["brokers_cpu_s"] is not None:
            each = delivery["brokers_cpu_s"] / delivery["messages"] * 1e6
            rows["broker, delivering"] = f"{each:.2f} us of processor time a message"
    share = shares(result)
    if share["brokers"] is not None:
        rows["broker"] = f"{broker_cpu_us(result) or 0:.2f} us of processor time a message" + "".join(
            f", {watched['private_bytes'] / 1e6:,.0f} MB private memory (process {watched['pid']})"
            for watched in result["watched"]
            if watched["private_bytes"] is not None
        )
    rows["processors"] = (
        ", ".join(f"{name} {used:.2f}" for name, used in share.items() if used is not None)
        + f" of {result['machine']['cores']} cores"
    )
    if result["empty_pulls"]:
        rows["empty pulls"] = f"{result['empty_pulls']:,}"
    if result["unanswered"]:
        rows["unanswered"] = f"{result['unanswered']:,} requests"
    for refused in result["refused"]:
        rows[f"refused, code {refused['code']}"] = f"{refused['count']:,}: {refused['remark'][:100]}"
    return rows


def described(command: Mapping[str, Any]) -> str:
    """The settings in one line."""
    each = command["messages_each"]
    fetches = {"consume": f"pulls of {each}", "pop": f"pops of {each} with acknowledgements"}
    what = fetches.get(command["work"]) or f"{command['body_bytes']} B"
    if command["work"] == "produce" and each > 1:
        what = f"batches of {each} x {what}"
    if command.get("due_ms"):
        what += ", timed"
    if command["work"] == "transact":
        what += " half and commit"
    loop = f"{command['rate']:,.0f}/s" if command["rate"] else "closed loop"
    header = "binary" if command["binary"] else "JSON"
    return f"{command['connections']} x {command['window']}, {what}, {header}, {loop}"


def duration(microseconds: float) -> str:
    """Three digits and a unit."""
    if microseconds < 1e3:
        return f"{microseconds:.0f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.3g} ms"
    return f"{microseconds / 1e6:.3g} s"
