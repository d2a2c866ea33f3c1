// Requests to the API. A failure throws an error with a hint.

const ROOT = "/api/v1";

export class ApiError extends Error {
  constructor(message, hint, status) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

/** Encode the parts of a path: path`/topics/${name}`. */
export const path = (parts, ...names) =>
  parts.reduce((whole, part, at) => whole + encodeURIComponent(names[at - 1]) + part);

/** Encode a query, without empty values. */
export function query(values) {
  const given = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") given.set(key, value);
  }
  const text = given.toString();
  return text ? `?${text}` : "";
}

async function answer(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    window.dispatchEvent(new Event("server-lost"));
    throw new ApiError("the server of this console does not answer", "is it still running?", 0);
  }
  const body = await response.json();
  // A login is required: the shell shows the form.
  if (response.status === 401) window.dispatchEvent(new Event("login-needed"));
  if (!response.ok) throw new ApiError(body.error, body.hint, response.status);
  return body;
}

/** Fetch a value. */
export const get = (address, signal) => answer(ROOT + address, { signal });

/** Send a change. */
export const change = (method, address, body) =>
  answer(ROOT + address, {
    method,
    headers: { "X-Rmqpy-Console": "change", "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** The cluster and the user of this console. */
export const about = () => answer("/console/about.json", {});

/** Receive the events of a path until the view is left. */
export function events(address, signal, receive, state) {
  const source = new EventSource(ROOT + address);
  source.addEventListener("open", () => state?.("live"));
  source.addEventListener("error", () => {
    state?.(source.readyState === EventSource.CLOSED ? "no longer live: reload the page" : "connecting again…");
    window.dispatchEvent(new Event("server-lost"));
  });
  source.addEventListener("failed", (event) => state?.(JSON.parse(event.data).error));
  source.addEventListener("message", (event) => receive(JSON.parse(event.data)));
  signal.addEventListener("abort", () => source.close());
  return source;
}
