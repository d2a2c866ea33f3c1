// Topics: their list, and the traffic, groups, queues and messages of one topic, with changes.

import { change, events, get, path, query } from "/console/api.js";
import { go, to } from "/console/address.js";
import { ask, confirmation, failure, field, fill, h, link, missing, name } from "/console/dom.js";
import { count, many, rate, time } from "/console/format.js";
import { messageTable } from "/console/message-table.js";
import { history } from "/console/chart.js";
import { sparkline } from "/console/sparkline.js";
import { serverTable, table } from "/console/table.js";

const TAIL = 100;
const COLUMNS = [
  { title: "Topic", of: "name", cell: (row) => link(to("topics", row.name), name(row.name)) },
  { title: "In / s recently", cell: (row) => sparkline(row.recent, "Messages in per second", rate) },
  { title: "Type", of: "type", cell: (row) => row.type ?? "–" },
  { title: "Queues to read", of: "read_queues", right: true, cell: (row) => count(row.read_queues) },
  { title: "to write", of: "write_queues", right: true, cell: (row) => count(row.write_queues) },
  { title: "Permission", of: "permission", cell: (row) => row.permission ?? "–" },
  { title: "Brokers", of: "brokers", cell: (row) => row.brokers.join(", ") },
];
const QUEUES = [
  { title: "Queue", still: true, cell: (row) => `${row.broker}:${row.queue_id}` },
  { title: "First", right: true, cell: (row) => count(row.begin) },
  { title: "End", right: true, cell: (row) => count(row.end) },
  { title: "Messages", right: true, cell: (row) => count(row.end - row.begin) },
  { title: "Newest", still: true, cell: (row) => time(row.stored_at_ms) },
  { title: "Permission", cell: (row) => row.permission },
];
const FLOWS = [
  { title: "", cell: (row) => (row.group === null ? "in" : ["out to ", link(to("groups", row.group), name(row.group))]) },
  { title: "Per second", right: true, cell: (row) => rate(row.per_second) },
  { title: "Last hour", right: true, cell: (row) => count(row.last_hour) },
  { title: "Last day", right: true, cell: (row) => count(row.last_day) },
  { title: "Waiting", right: true, cell: (row) => count(row.lag) },
];

export async function topics(shown, view) {
  const [topic] = view.parts;
  if (topic === undefined) {
    list(shown, view);
    return;
  }
  const found = await get(path`/topics/${topic}`, view.signal);
  const held = found.queues.reduce((whole, queue) => whole + queue.end - queue.begin, 0);
  const newest = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  fill(shown,
    h("p", { class: "facts" }, `${many(held, "message")} in ${many(found.queues.length, "queue")}. `, link(to("messages", { topic }), "Search")),
    missing(found.missing),
    view.allowChanges ? h("div", { class: "tools" },
      h("button", { type: "button", class: "main", onclick: () => send(topic, {}) }, "Send a message"),
      h("button", { type: "button", onclick: () => remove(topic) }, "Delete the topic")) : null,
    history("topics", topic, view),
    h("section", {}, h("h2", {}, "Traffic"), table(FLOWS, found.flows, "", "Messages in, and out to each group")),
    live(topic, newest, view),
    h("section", {}, h("h2", {}, "Queues"), table(QUEUES, found.queues, "The topic has no queue that can be read.", "Queues")),
    h("section", {}, h("h2", {}, "Settings"), Object.entries(found.settings).map(([broker, settings]) =>
      h("details", {}, h("summary", {}, broker), h("pre", {}, JSON.stringify(settings, null, 2))))));
  const draft = view.query.get("from");
  if (draft && view.allowChanges) await prefilled(topic, draft, view);
}

function list(shown, view) {
  const system = h("input", { type: "checkbox" });
  system.checked = view.query.get("system") === "true";
  system.addEventListener("change", () => go(to("topics", system.checked ? { system: "true" } : {})));
  fill(shown,
    h("div", { class: "tools" },
      view.allowChanges ? h("button", { type: "button", class: "main", onclick: create }, "Create topic") : null,
      field("System topics", system)),
    serverTable({ path: "/topics", columns: COLUMNS, view, sort: "name", empty: "No topics yet: the first message creates one.", caption: "Topics", more: { system: String(system.checked) } }));
}

/** The newest messages, and new ones while the page is open. */
function live(topic, newest, view) {
  let rows = [];
  let source = null;
  const state = h("span", { class: "quiet", role: "status" });
  const show = () => fill(newest, messageTable(rows, "The topic has no messages yet.", "Newest messages"));
  const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    if (source) {
      source.close();
      source = null;
      state.textContent = "";
    } else {
      source = events(path`/topics/${topic}/tail`, view.signal, (row) => {
        rows = [row, ...rows].slice(0, TAIL);
        show();
      }, (text) => { state.textContent = text; });
    }
    button.setAttribute("aria-pressed", String(source !== null));
    button.textContent = source ? "Stop following" : "Follow";
  } }, "Follow");
  get(path`/topics/${topic}/newest`, view.signal).then((found) => {
    rows = found;
    show();
  }, (error) => {
    if (error.name !== "AbortError") fill(newest, failure(error));
  });
  return h("section", {}, h("h2", {}, "Newest messages"), h("div", { class: "tools" }, button, state), newest);
}

async function create() {
  const topic = h("input", { required: true, autocomplete: "off" });
  const queues = h("input", { type: "number", min: "1", max: "1024", value: "8", required: true });
  const type = h("select", {}, ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"].map((each) => h("option", {}, each)));
  const made = await ask("Create topic", [field("Name", topic), field("Queues at each broker", queues), field("Type", type)], "Create",
    () => change("POST", "/topics", { topic: topic.value, queues: Number(queues.value), type: type.value }));
  if (made) go(to("topics", topic.value), `The topic ${topic.value} was created.`);
}

async function remove(topic) {
  const gone = await ask(`Delete the topic ${topic}`, [
    h("p", { class: "box bad" }, "Its messages become unreadable."), confirmation(topic)], "Delete",
  () => change("DELETE", path`/topics/${topic}`, {}));
  if (gone) go(to("topics"), `The topic ${topic} was deleted.`);
}

/** A form to send a message, filled in with the draft. */
export async function send(topic, draft) {
  const body = h("textarea", { rows: "8", spellcheck: "false" });
  body.value = draft.text ?? "";
  const tag = h("input", { value: draft.tag ?? "" });
  const keys = h("input", { value: (draft.keys ?? []).join(" ") });
  const properties = h("textarea", { rows: "3", spellcheck: "false", placeholder: "name=value, one per line" });
  properties.value = Object.entries(draft.properties ?? {}).map(([key, value]) => `${key}=${value}`).join("\n");
  const sent = await ask(`Send a message to ${topic}`, [field("Body", body), field("Tag", tag), field("Keys, separated by spaces", keys), field("Properties", properties)], "Send",
    () => change("POST", path`/topics/${topic}/messages`, {
      body: body.value, tag: tag.value || null, keys: keys.value.split(/\s+/).filter(Boolean),
      properties: Object.fromEntries(properties.value.split("\n").filter((line) => line.includes("=")).map((line) => {
        const at = line.indexOf("=");
        return [line.slice(0, at).trim(), line.slice(at + 1)];
      })),
    }));
  if (sent) go(to("messages", sent.offset_message_id), `The message was sent to ${topic}.`);
}

/** Show the form of `send` with a copy of a message, without properties that clients and brokers set. */
async function prefilled(topic, id, view) {
  const message = await get(path`/messages/${id}` + query({}), view.signal);
  const own = Object.entries(message.properties).filter(([key]) => !/^[A-Z][A-Z0-9_#]*$/.test(key) && !key.startsWith("__"));
  await send(topic, { text: message.text ?? "", tag: message.row.tag, keys: message.row.keys, properties: Object.fromEntries(own) });
}
