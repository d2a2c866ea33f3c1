"""Pages of the console: their files, and one page in a browser if the machine has one."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import rmqpy
from apiclient import api_of
from console.hostile import NAMES, TEXTS
from rmqpy.console import site
from rmqpy.server import Standalone

ASSETS = Path(site.__file__).parent / "assets"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
#: The chart library, and the hash of dist/uPlot.esm.js in its npm package.
VENDORED = "uplot.js"
PUBLISHED_SHA256 = "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba"
#: Ways to turn a text into markup or code.
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|DOMParser|srcdoc|\.style\b"
)


def test_pages_are_small_and_have_their_content_types(reading: Standalone) -> None:
    ask = api_of(reading.http)
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
    whole = 0
    for path in ASSETS.iterdir():
        answer = ask("/" if path.name == "index.html" else f"/console/{path.name}", api=False)
        assert (answer.status, answer.text) == (200, path.read_text("utf-8"))
        assert answer.headers["content-type"].startswith(kinds[path.suffix])
        assert answer.headers["x-content-type-options"] == "nosniff"
        whole += len(gzip.compress(path.read_bytes()))
    assert whole < 150_000
    assert ask("/console/../site.py", api=False).status == 404


@pytest.mark.parametrize(
    "path", sorted(path for path in ASSETS.iterdir() if path.name != VENDORED), ids=lambda path: path.name
)
def test_page_loads_only_own_files_and_escapes_texts(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not MARKUP.search(text)
    addresses = set(re.findall(r"\w+://[\w.]+", text)) - {"http://www.w3.org"}
    assert not addresses
    for target in re.findall(r'(?:from|src=|href=) ?"/console/([^"]+)"', text):
        assert (ASSETS / target).is_file(), target


def test_first_view_loads_few_scripts_all_at_once() -> None:
    """Scripts of the other pages come with them; a browser that finds imports one by one would wait for each."""
    needed, found = {"app.js"}, set[str]()
    while needed - found:
        name = min(needed - found)
        found.add(name)
        needed |= set(
            re.findall(r'^import .* from "/console/([^"]+)"', (ASSETS / name).read_text("utf-8"), re.M)
        )
    page = (ASSETS / "index.html").read_text("utf-8")
    assert set(re.findall(r'modulepreload" href="/console/([^"]+)"', page)) == found - {"app.js"}
    assert not found & {"overview.js", "groups.js", "topics.js", "messages.js", "table.js"}


def test_chart_library_is_the_published_text_with_its_licence() -> None:
    """It creates no markup from texts, and the addresses in its comments are not loaded."""
    head, _, library = (ASSETS / VENDORED).read_text("utf-8").partition("*/\n")
    assert "uPlot 1.6.32" in head
    assert "The MIT License" in head
    assert "Copyright (c) 2022 Leon Sorokin" in head
    assert hashlib.sha256(library.encode()).hexdigest() == PUBLISHED_SHA256
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|\beval\(|new Function|fetch\(|\bimport\b", library
    )


def test_hostile_texts_are_answered_as_json_character_by_character(reading: Standalone) -> None:
    send_hostile(reading, "hostile-json")
    answer = api_of(reading.http)("/messages?topic=hostile-json&found_max=200")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    found = answer.json["messages"]
    assert {each["preview"] for each in found} == {" ".join(text.split()) for text in TEXTS}
    one = api_of(reading.http)(f"/messages/{found[0]['offset_message_id']}").json
    assert one["text"] == one["properties"]["hostile"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_shows_hostile_texts_as_texts(reading: Standalone) -> None:
    send_hostile(reading, "hostile-page")
    dom = shown(reading, "messages?topic=hostile-page")
    assert "All 100 messages were searched: 100 found." in dom
    assert dom.count("<script") == 1
    assert not re.search(r"<(iframe|svg|img|base|meta http|form action|details open|style|object)", dom)
    assert "&lt;script&gt;window.hacked=1&lt;/script&gt;" in dom
    assert "\\u202egnp.exe" in dom


def send_hostile(server: Standalone, topic: str) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        for name in (topic, *NAMES):
            admin.create_topic(name, read_queues=1, write_queues=1, exist_ok=True)
        for text in TEXTS:
            producer.send(topic, text.encode(), properties={"hostile": text})


def shown(server: Standalone, view: str) -> str:
    """The elements of a page, once its scripts have drawn it."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000"]
    if os.geteuid() == 0:
        command.append("--no-sandbox")
    address = f"http://{server.http}/#/{view}"
    return subprocess.run([*command, address], capture_output=True, text=True, timeout=60, check=True).stdout
