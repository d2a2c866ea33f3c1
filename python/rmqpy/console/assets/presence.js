// Presence: checks whether the server of this console answers. While it does not, pages may be out of date.

const EVERY_MS = 10_000;
const WAIT_MS = 5_000;

/** Check periodically while the page is visible, and after a failed request; report the start of an outage, or null. */
export function watch(report) {
  let since = null;
  let isAsking = false;
  const look = async () => {
    if (isAsking || document.visibilityState === "hidden") return;
    isAsking = true;
    let answers = false;
    try {
      answers = (await fetch("/livez", { cache: "no-store", signal: AbortSignal.timeout(WAIT_MS) })).ok;
    } catch { /* unreachable */ }
    isAsking = false;
    if (answers === (since === null)) return;
    since = answers ? null : new Date();
    report(since);
  };
  setInterval(look, EVERY_MS);
  window.addEventListener("server-lost", look);
}
