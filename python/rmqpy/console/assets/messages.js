// Messages: found by time, text, key or id; one whole, as text, JSON or hex, with what became of it.

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
  h("div", { class: "tools" }, field("Topic", input("topic", { list: "topics" })), known,
    field("Text in body, keys or properties", input("text", view.seesBodies ? {} : { disabled: true, title: "for those who may see bodies" })), field("Tag", input("tag")),
    field("From", input("from", { type: "datetime-local" })), field("To", input("until", { type: "datetime-local" })),
    field("Look at, at most", scan)),
  h("div", { class: "tools" }, field("Or the key", input("key")), field("Or the id", input("id")),
    h("button", { type: "submit", class: "main" }, "Search")));
  const result = h("div", { "aria-live": "polite" });
  fill(shown, form, result);
  get("/topics?size=500", view.signal).then((found) =>
    fill(known, found.rows.map((row) => h("option", { value: row.name }))), () => {});
  if (!asked("topic")) {
    fill(result, h("p", { class: "quiet" }, "Name a topic; or an id that a broker gave."));
    return;
  }
  const moment = (text) => (text ? new Date(text).toISOString() : "");
  fill(result, h("p", { class: "quiet" }, "Looking…"));
  if (asked("key")) {
    const found = await get("/messages/by-key" + query({ topic: asked("topic"), key: asked("key"), begin: moment(asked("from")), end: moment(asked("until")) }), view.signal);
    fill(result, messageTable(found, "No message has this key.", "Messages with the key, newest first"));
    return;
  }
  const found = await get("/messages" + query({
    topic: asked("topic"), text: asked("text"), tag: asked("tag"), begin: moment(asked("from")), end: moment(asked("until")), scan_max: scan.value,
  }), view.signal);
  fill(result, scope(found), messageTable(found.messages, "None of them is what you look for.", "Messages found, newest first"));
}

/** How far the search looked, and where it did not. */
function scope(found) {
  const left = found.unscanned.reduce((whole, each) => whole + each.end - each.begin, 0);
  if (!left) return h("p", { class: "box ok", role: "status" }, `All ${count(found.scanned)} messages were looked at: ${count(found.messages.length)} found.`);
  return h("div", { class: "box warn", role: "status" },
    `Not everything was looked at: ${count(found.messages.length)} found among the newest ${count(found.scanned)}, and ${count(left)} older ones were not looked at. Narrow the times, or look at more.`,
    h("details", {}, h("summary", {}, "Which were not"), h("ul", {}, found.unscanned.map((each) =>
      h("li", {}, `${each.broker}:${each.queue_id}: offsets ${count(each.begin)} to ${count(each.end - 1)}`)))));
}

async function one(shown, id, view) {
  const message = await get(path`/messages/${id}` + query({ topic: view.query.get("topic") ?? "" }), view.signal);
  const { row } = message;
  const fact = (title, ...value) => [h("dt", {}, title), h("dd", {}, value)];
  const trace = h("div", {}, h("p", { class: "quiet" }, "Looking…"));
  fill(shown,
    h("div", { class: "tools" },
      view.allowChanges && message.body_view === "shown" && message.text !== null && !message.is_cut && !row.topic.startsWith("%")
        ? h("a", { class: "button", href: to("topics", row.topic, { from: row.offset_message_id }) }, "Send one like it") : null),
    h("dl", {},
      fact("Topic", link(to("topics", row.topic), name(row.topic))),
      fact("Queue", `${row.broker ? `${row.broker}:` : ""}${row.queue_id}, offset ${count(row.offset)}`),
      fact("Id of the producer", h("code", {}, row.message_id)), fact("Id of the broker", h("code", {}, row.offset_message_id)),
      fact("Tag", row.tag ?? "–"), fact("Keys", row.keys.join(" ") || "–"),
      fact("Made", `${time(message.born_at)} at ${row.born_host}`), fact("Stored", `${time(row.stored_at)} at ${message.store_host}`),
      fact("Delivery", `number ${count(message.attempts)}`), fact("Size", bytes(row.size))),
    message.fault ? h("p", { class: "box bad" }, message.fault) : null,
    body(message),
    h("section", {}, h("h2", {}, "Properties"), table(PROPERTIES, Object.entries(message.properties), "It has none.", "Properties")),
    h("section", {}, h("h2", {}, "Trace"), trace));
  try {
    const steps = await get(path`/messages/${row.message_id}/trace`, view.signal);
    if (steps.length) timeline(trace, steps);
    else fill(trace, h("p", { class: "quiet" }, "No client has traced it: clients trace where it is enabled, and write some seconds later."));
  } catch (error) {
    if (error.name !== "AbortError") fill(trace, failure(error));
  }
}

const PROPERTIES = [
  { title: "Name", cell: ([key]) => h("code", {}, key) },
  { title: "Value", long: true, cell: ([, value]) => value },
];

/** The body, in the form that is chosen; JSON first where it is some. */
function body(message) {
  const data = Uint8Array.from(atob(message.base64), (character) => character.charCodeAt(0));
  const forms = { Hex: () => hex(data) };
  if (message.text !== null) {
    forms.Text = () => message.text;
    try {
      const parsed = JSON.stringify(JSON.parse(message.text), null, 2);
      if (/^\s*[[{]/.test(message.text)) forms.JSON = () => parsed;
    } catch { /* text alone */ }
  }
  if (message.body_view === "hidden") {
    return h("section", {}, h("h2", {}, "Body"), h("p", { class: "quiet" }, "Bodies are shown to super users alone: log in as one."));
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
  { title: "Outcome", cell: (row) => h("span", { class: `badge ${/success|commit/.test(row.outcome ?? "") ? "ok" : row.outcome ? "warn" : ""}` }, row.outcome ?? "has not ended") },
];

/** Steps as bars on a common line of time, and as a table that says the same in words. */
function timeline(element, steps) {
  const timed = steps.filter((step) => step.at_ms !== null);
  const begin = Math.min(...timed.map((step) => step.at_ms));
  const end = Math.max(...timed.map((step) => step.at_ms + (step.took_ms ?? 0)), begin + 1);
  const x = (moment) => (100 * (moment - begin)) / (end - begin);
  const bars = timed.map((step, at) => h("line", {
    x1: String(x(step.at_ms)), x2: String(Math.max(x(step.at_ms) + 0.6, x(step.at_ms + (step.took_ms ?? 0)))),
    y1: String(at * 4 + 2), y2: String(at * 4 + 2), class: step.what === "send" ? "sent" : "consumed",
  }));
  fill(element,
    timed.length ? h("svg", { class: "timeline", viewBox: `0 0 101 ${timed.length * 4}`, preserveAspectRatio: "none", "aria-hidden": "true" }, bars) : null,
    timed.length ? h("p", { class: "quiet" }, `${span(end - begin)} from the first step to the last`) : null,
    table(STEPS, steps, "", "Steps in order of time"));
}
