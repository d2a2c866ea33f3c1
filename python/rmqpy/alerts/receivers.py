"""Delivery of notices: webhooks, mail, commands. Blocks: call it in a worker."""

import json
import smtplib
import ssl
import subprocess
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rmqpy.alerts.rules import Receiver
from rmqpy.alerts.state import Notice

TIMEOUT_S: Final = 10.0
#: Of a command.
COMMAND_S: Final = 30.0
#: Characters of a subject line.
_SUBJECT_MAX: Final = 200


class _NoRedirects(HTTPRedirectHandler):
    """A redirected notice would be sent as a GET without its body."""

    def redirect_request(self, *_: Any) -> None:
        return None


def deliver(receiver: Receiver, notice: Notice, console_url: str) -> None:
    """Send one notice. Raises `OSError`, also for a refusal."""
    if receiver.webhook:
        _post(receiver, content(notice, console_url))
    elif receiver.smtp:
        _mail(receiver, notice, console_url)
    else:
        _run(receiver, content(notice, console_url))


def content(notice: Notice, console_url: str) -> bytes:
    """The JSON that webhooks and commands receive; `text` suits chat services."""
    fields = {name: each for name, each in notice._asdict().items() if name != "to"}
    return json.dumps(
        {**fields, "lasted": round(notice.lasted), "text": line(notice), "console": console_url}
    ).encode()


def line(notice: Notice) -> str:
    """The notice in one line.

    >>> line(Notice("firing", "i", "disk *", "disk of a", "bad", "it is full", "make room", 3.0, ()))
    'firing: disk of a: it is full; make room'
    """
    advice = f"; {notice.advice}" if notice.advice and notice.kind != "resolved" else ""
    return f"{notice.kind}: {notice.subject}: {notice.found}{advice}"


def _post(receiver: Receiver, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "rmqpy"}
    if receiver.secret_file:
        headers["Authorization"] = _secret(receiver)
    request = Request(receiver.webhook, body, headers, method="POST")
    with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S):
        pass


def _mail(receiver: Receiver, notice: Notice, console_url: str) -> None:
    message = EmailMessage()
    subject = " ".join(f"[rmqpy] {notice.kind}: {notice.subject}".split())
    message["Subject"] = "".join(each for each in subject if each.isprintable())[:_SUBJECT_MAX]
    message["From"], message["To"] = receiver.sender, ", ".join(receiver.recipients)
    advice = f"\n\n{notice.advice}" if notice.kind != "resolved" else ""
    message.set_content(
        f"{notice.found}{advice}\n\nrule: {notice.rule}\nlasted: {notice.lasted:.0f} s\n{console_url}\n"
    )
    host, _, port = receiver.smtp.rpartition(":")
    context = ssl.create_default_context()
    server: smtplib.SMTP
    if receiver.encryption == "tls":
        server = smtplib.SMTP_SSL(host, int(port), timeout=TIMEOUT_S, context=context)
    else:
        server = smtplib.SMTP(host, int(port), timeout=TIMEOUT_S)
    with server:
        if receiver.encryption == "starttls":
            server.starttls(context=context)
        if receiver.user:
            server.login(receiver.user, _secret(receiver))
        server.send_message(message)


def _run(receiver: Receiver, body: bytes) -> None:
    try:
        done = subprocess.run(
            receiver.command, input=body, capture_output=True, timeout=COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"the command did not end within {COMMAND_S:.0f} s") from None
    if done.returncode:
        raise OSError(
            f"the command ended with {done.returncode}: {done.stderr[:200].decode('utf-8', 'replace')}"
        )


def _secret(receiver: Receiver) -> str:
    return Path(receiver.secret_file).read_text("utf-8").strip()
