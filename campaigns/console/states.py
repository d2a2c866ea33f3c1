"""Pages of a console in one state of trouble, from `troubles`, and pages whose server has gone."""

import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from campaigns.console.clusters import busy
from campaigns.console.troubles import STATES
from campaigns.console.visit import LISTS, Visit
from rmqpy.config.client import ClientConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.server import Thread

#: A browser logs every error response.
ERRORS: Final = ("404", "502", "504")
#: Pages of single resources in a state of trouble.
RESOURCES: Final = ("brokers/broker-a", "topics/orders")
TOPICS: Final = 5


def visit_state(browser: Browser, folder: Path, theme: str, state: str) -> Visit:
    with tempfile.TemporaryDirectory(prefix="rmqpy-state-") as name, STATES[state](Path(name)) as shown:
        thread = Thread(dashboard := Dashboard(shown.cluster, port=0, allow_changes=True))
        thread.start()
        try:
            visit = Visit(browser, dashboard.address, folder, theme, ERRORS)
            for view in (*LISTS, *RESOURCES):
                visit.open(view.replace("/", "-"), view, f"#strip .state.{shown.level}")
            visit.page.close()
        finally:
            thread.stop()
    return visit


def visit_gone(browser: Browser, folder: Path, theme: str) -> Visit:
    """Open every page, stop the server, and look at the pages again."""
    with busy(TOPICS) as server:
        thread = Thread(
            dashboard := Dashboard(ClientConfig(namesrv=server.namesrv), port=0, allow_changes=True)
        )
        thread.start()
        try:
            visits = {
                view: Visit(browser, dashboard.address, folder, theme, ("net::ERR_",)) for view in LISTS
            }
            for view, visit in visits.items():
                visit.open(f"{view}-before", view)
        finally:
            thread.stop()
        for view, visit in visits.items():
            visit.wait("body.away")
            visit.take(view)
            visit.page.close()
    whole = visits[LISTS[0]]
    for visit in visits.values():
        if visit is not whole:
            whole.wrong += visit.wrong
            whole.seconds |= visit.seconds
    return whole
