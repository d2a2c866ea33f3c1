// Pending messages: timed ones by topic and due time, and half messages without a decision.

import { change, get, path } from "/console/api.js";
import { to } from "/console/address.js";
import { done, failure, fill, h, link, missing, name } from "/console/dom.js";
import { bytes, count, span, time } from "/console/format.js";
import { serverTable, table } from "/console/table.js";

const COLUMNS = [
  { title: "Topic", of: "topic", cell: (row) => link(to("topics", row.topic), name(row.topic)) },
  { title: "Waiting", of: "waiting", right: true, cell: (row) => count(row.waiting) },
  { title: "Due", cell: (row) => due(row.due_within) },
];
const UNDECIDED = "TRANS_CHECK_MAX_TIME_TOPIC";

/** Format the counts by due time: "3 within 10 s, 5 later". */
function due(within) {
  const parts = Object.entries(within).filter(([, number]) => number > 0)
    .sort(([a], [b]) => (a === "later") - (b === "later") || Number(a) - Number(b))
    .map(([seconds, number]) => `${count(number)} ${seconds === "later" ? "later" : `within ${span(1000 * Number(seconds))}`}`);
  return parts.join(", ") || h("span", { class: "quiet" }, "not reported by its broker");
}

export async function timers(shown, view) {
  const halves = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  fill(shown,
    h("section", {}, h("h2", {}, "Timed messages"), serverTable({ path: "/timers", columns: COLUMNS, view, sort: "-waiting", empty: "No pending timed messages.", caption: "Pending timed messages" })),
    h("section", {}, h("h2", {}, "Half messages"),
      h("p", { class: "facts" }, "Messages of transactions that are neither committed nor rolled back. Brokers ask the members of the producer group; messages that were given up without a decision are in ",
        link(to("messages", { topic: UNDECIDED }), UNDECIDED), "."), halves));
  const show = async () => {
    const found = await get("/half-messages", view.signal);
    fill(halves, missing(found.missing),
      found.unscanned ? h("p", { class: "box warn" }, `${count(found.unscanned)} older ones were not read.`) : null,
      table(columns(view), found.halves, found.missing.length ? "Nothing else is known." : "No pending half messages.", "Pending half messages, oldest first"));
  };
  try {
    await show();
  } catch (error) {
    if (error.name !== "AbortError") fill(halves, failure(error));
  }
}

const columns = (view) => [
  { title: "Stored", still: true, cell: (row) => time(row.stored_at) },
  { title: "Topic", cell: (row) => link(to("topics", row.topic), name(row.topic)) },
  { title: "Producer group", cell: (row) => name(row.producer_group ?? "not reported") },
  { title: "Broker", cell: (row) => row.broker },
  { title: "Message", long: true, cell: (row) => link(to("messages", row.offset_message_id), row.preview || "(empty)") },
  { title: "Size", right: true, cell: (row) => bytes(row.size) },
  ...(view.allowChanges ? [{ title: "", cell: (row) => checkButton(row) }] : []),
];

function checkButton(row) {
  const button = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      await change("POST", path`/half-messages/${row.offset_message_id}/check`, {});
      button.after(done("its producers were asked"));
    } catch (error) {
      button.replaceWith(failure(error));
    }
  } }, "Ask its producers");
  return button;
}
