// Messages: search by time, text, key or id, and one message as text, JSON or hex with its trace.

import { get, path, query } from "/console/api.js";
import { go, to } from "/console/address.js";
import { failure, field, fill, h, link, name, visible } from "/console/dom.js";
import { bytes, count, hex, span, time } from "/console/format.js";
import { messageTable } from "/console/message-table.js";
import { table } from "/console/table.js";

const SCANS = ["1000", "10000", "100000"];

export async function messages(shown, view) {
  if (view.parts.length) await one(shown, view.parts[0], view);
  else await search(shown, view);
}

async function search(shown, view) {
  const asked = (key) => view.query.get(key) ?? "";
  const input = (key, attributes = {}) => h("input", { name: key, value: asked(key), autocomplete: "off", ...attributes });
  const scan = h("select", { name: "scan" }, SCANS.map((each) => h("option", { value: each }, count(Number(each)))));
  scan.value = SCANS.includes(asked("scan")) ? asked("scan") : "10000";
  const known = h("datalist", { id: "topics" });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(form)].map(([key, value]) => [key, value.trim()]));
    if (given.id) go(to("messages", given.id, { topic: given.topic }));
    else go(to("messages", { ...given, at: Date.now() }));
  } },
  h("div", { class: "tools form" }, field("Topic", input("topic", { list: "topics" })), known,
    field("Text in body, keys or properties", input("text", view.seesBodies ? {} : { disabled: true, title: "requires the right to see bodies" })), field("Tag", input("tag")),
    field("From", input("from", { type: "datetime-local" })), field("To", input("until", { type: "datetime-local" })),
    field("Messages to search", scan)),
  h("div", { class: "tools" }, field("Or the key", input("key")), field("Or the id", input("id")),
    h("button", { type: "submit", class: "main" }, "Search")));
  const result = h("div", { "aria-live": "polite" });
  fill(shown, form, result);
  get("/topics?size=500", view.signal).then((found) =>
    fill(known, found.rows.map((row) => h("option", { value: row.name }))), () => {});
  if (!asked("topic")) {
    fill(result, h("p", { class: "quiet" }, "Enter a topic, or a broker's message id."));
    return;
  }
  fill(result, h("p", { class: "quiet" }, "Searching…"));
  try {
    await found(result, asked, scan.value, view);
  } catch (error) {
    // The form stays, with what was asked.
    if (error.name === "AbortError") throw error;
    fill(result, failure(error));
  }
}

async function found(result, asked, scanned, view) {
  const moment = (text) => (text ? new Date(text).toISOString() : "");
  if (asked("key")) {
    const rows = await get("/messages/by-key" + query({ topic: asked("topic"), key: asked("key"), begin: moment(asked("from")), end: moment(asked("until")) }), view.signal);
    fill(result, messageTable(rows, "No message has this key.", "Messages with the key, newest first"));
    return;
  }
  const answer = await get("/messages" + query({
    topic: asked("topic"), text: asked("text"), tag: asked("tag"), begin: moment(asked("from")), end: moment(asked("until")), scan_max: scanned,
  }), view.signal);
  fill(result, scope(answer), messageTable(answer.messages, "No message matches.", "Messages found, newest first"));
}

/** The range of the search, and the parts that were not searched. */
function scope(found) {
  const left = found.unscanned.reduce((whole, each) => whole + each.end - each.begin, 0);
  if (!left) return h("p", { class: "box ok", role: "status" }, `All ${count(found.scanned)} messages were searched: ${count(found.messages.length)} found.`);
  return h("div", { class: "box warn", role: "status" },
    `Incomplete search: ${count(found.messages.length)} found among the newest ${count(found.scanned)}; ${count(left)} older ones were not searched. Narrow the times, or search more messages.`,
    h("details", {}, h("summary", {}, "Not searched"), h("ul", {}, found.unscanned.map((each) =>
      h("li", {}, `${each.broker}:${each.queue_id}: offsets ${count(each.begin)} to ${count(each.end - 1)}`)))));
}

async function one(shown, id, view) {
  const message = await get(path`/messages/${id}` + query({ topic: view.query.get("topic") ?? "" }), view.signal);
  const { row } = message;
  const fact = (title, ...value) => [h("dt", {}, title), h("dd", {}, value)];
  const trace = h("div", {}, h("p", { class: "quiet" }, "Searching…"));
  fill(shown,
    h("div", { class: "tools" },
      view.allowChanges && message.body_view === "shown" && message.text !== null && !message.is_cut && !row.topic.startsWith("%")
        ? h("a", { class: "button", href: to("topics", row.topic, { from: row.offset_message_id }) }, "Send a copy") : null),
    h("dl", {},
      fact("Topic", link(to("topics", row.topic), name(row.topic))),
      fact("Queue", `${row.broker ? `${row.broker}:` : ""}${row.queue_id}, offset ${count(row.offset)}`),
      fact("Id of the producer", h("code", {}, row.message_id)), fact("Id of the broker", h("code", {}, row.offset_message_id)),
      fact("Tag", row.tag ?? "–"), fact("Keys", row.keys.join(" ") || "–"),
      fact("Made", `${time(message.born_at)} at ${row.born_host}`), fact("Stored", `${time(row.stored_at)} at ${message.store_host}`),
      fact("Delivery", `number ${count(message.attempts)}`), fact("Size", bytes(row.size))),
    message.fault ? h("p", { class: "box bad" }, message.fault) : null,
    body(message),
    h("section", {}, h("h2", {}, "Properties"), table(PROPERTIES, Object.entries(message.properties), "No properties.", "Properties")),
    h("section", {}, h("h2", {}, "Trace"), trace));
  try {
    const steps = await get(path`/messages/${row.message_id}/trace`, view.signal);
    if (steps.length) timeline(trace, steps);
    else fill(trace, h("p", { class: "quiet" }, "No trace of it was found. Only clients with tracing record one, some seconds later."));
  } catch (error) {
    if (error.name !== "AbortError") fill(trace, failure(error));
  }
}

const PROPERTIES = [
  { title: "Name", cell: ([key]) => h("code", {}, key) },
  { title: "Value", long: true, cell: ([, value]) => value },
];

/** The body in the chosen form; valid JSON is shown as JSON first. */
function body(message) {
  const data = Uint8Array.from(atob(message.base64), (character) => character.charCodeAt(0));
  const forms = { Hex: () => hex(data) };
  if (message.text !== null) {
    forms.Text = () => message.text;
    try {
      const parsed = JSON.stringify(JSON.parse(message.text), null, 2);
      if (/^\s*[[{]/.test(message.text)) forms.JSON = () => parsed;
    } catch { /* not JSON */ }
  }
  if (message.body_view === "hidden") {
    return h("section", {}, h("h2", {}, "Body"), h("p", { class: "quiet" }, "Only super users see bodies: log in as one."));
  }
  const shown = h("pre", { class: "body", tabindex: "0", "aria-label": "body" });
  const buttons = Object.keys(forms).reverse().map((form) =>
    h("button", { type: "button", onclick: (event) => choose(form, event.target) }, form));
  const choose = (form, button) => {
    shown.textContent = visible(forms[form](), true);
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
  };
  choose(buttons[0].textContent, buttons[0]);
  return h("section", {}, h("h2", {}, "Body"), h("div", { class: "tools" }, buttons),
    message.body_view === "masked" ? h("p", { class: "box warn" }, "Masked: letters are x, digits 0. Super users see it whole.") : null,
    message.is_cut ? h("p", { class: "box warn" }, `The first ${bytes(data.length)} of ${bytes(message.row.size)} are shown.`) : null, shown);
}

const STEPS = [
  { title: "When", still: true, cell: (row) => time(row.at_ms) },
  { title: "What", cell: (row) => row.what },
  { title: "Group", cell: (row) => (row.group ? name(row.group) : "") },
  { title: "Client", cell: (row) => row.client },
  { title: "Broker", cell: (row) => row.broker ?? "" },
  { title: "Delivery", right: true, cell: (row) => (row.attempt === null ? "" : count(row.attempt)) },
  { title: "Took", right: true, cell: (row) => (row.took_ms === null ? "–" : row.took_ms ? span(row.took_ms) : "0 ms") },
  { title: "Outcome", cell: (row) => h("span", { class: `badge ${/success|commit/.test(row.outcome ?? "") ? "ok" : row.outcome ? "warn" : ""}` }, row.outcome ?? "in progress") },
];

/** Trace steps as a table, each with its bar on a common timeline. */
function timeline(element, steps) {
  const timed = steps.filter((step) => step.at_ms !== null);
  const begin = Math.min(...timed.map((step) => step.at_ms));
  const end = Math.max(...timed.map((step) => step.at_ms + (step.took_ms ?? 0)), begin + 1);
  const x = (moment) => (100 * (moment - begin)) / (end - begin);
  const bar = (step) => {
    if (step.at_ms === null) return "";
    const [from, until] = [x(step.at_ms), x(step.at_ms + (step.took_ms ?? 0))];
    return h("svg", { class: "timeline", viewBox: "0 0 102 6", preserveAspectRatio: "none", role: "img",
      "aria-label": `${step.at_ms - begin} ms after the first step, for ${step.took_ms ?? "an unknown number of"} ms` },
      h("line", { x1: "0", x2: "102", y1: "3", y2: "3", class: "ground" }),
      h("line", { x1: String(from), x2: String(Math.max(until, from + 1.5)), y1: "3", y2: "3", class: step.what === "send" ? "sent" : "consumed" }));
  };
  const columns = [...STEPS.slice(0, 2),
    { title: "After the first", right: true, cell: (row) => (row.at_ms === null ? "–" : `${count(row.at_ms - begin)} ms`) },
    { title: timed.length ? `Timeline of ${span(end - begin)}` : "Timeline", cell: bar }, ...STEPS.slice(2)];
  fill(element, table(columns, steps, "", "Steps in order of time"));
}
