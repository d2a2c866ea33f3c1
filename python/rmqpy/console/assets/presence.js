// Presence: whether the server of this console answers. While it does not, nothing on a page is known to be true.

const EVERY_MS = 10_000;
const WAIT_MS = 5_000;

/** Ask it now and then while somebody looks, and when a request was lost; tell since when it does not answer, or null. */
export function watch(tell) {
  let since = null;
  let isAsking = false;
  const look = async () => {
    if (isAsking || document.visibilityState === "hidden") return;
    isAsking = true;
    let answers = false;
    try {
      answers = (await fetch("/livez", { cache: "no-store", signal: AbortSignal.timeout(WAIT_MS) })).ok;
    } catch { /* it is away */ }
    isAsking = false;
    if (answers === (since === null)) return;
    since = answers ? null : new Date();
    tell(since);
  };
  setInterval(look, EVERY_MS);
  window.addEventListener("server-lost", look);
}
