// Addresses of views: #/groups/billing?sort=-lag. Each can be kept, sent and opened again.

/** The parts and the query of the current address. */
export function here() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(text ?? "") };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a view: to("groups", name), to("messages", {topic}). */
export function to(...parts) {
  const values = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const given = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const text = given.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Update the query of the address without leaving the view. */
export function replaceQuery(values) {
  const { parts, query } = here();
  const merged = { ...Object.fromEntries(query), ...values };
  history.replaceState(null, "", to(...parts, merged));
}

/** Open a view; it begins with the notice, which says what was changed. */
export const go = (address, notice = "") => {
  waiting = notice;
  location.hash = address;
};

let waiting = "";

/** Take the notice for the view that is drawn now. */
export function takeNotice() {
  const notice = waiting;
  waiting = "";
  return notice;
}
