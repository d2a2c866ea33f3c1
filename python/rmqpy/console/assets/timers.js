// Timed messages: how many wait, of which topic, and when they are due.

import { to } from "/console/address.js";
import { fill, h, link, name } from "/console/dom.js";
import { count, span } from "/console/format.js";
import { serverTable } from "/console/table.js";

const COLUMNS = [
  { title: "Topic", of: "topic", cell: (row) => link(to("topics", row.topic), name(row.topic)) },
  { title: "Waiting", of: "waiting", right: true, cell: (row) => count(row.waiting) },
  { title: "Due", cell: (row) => due(row.due_within) },
];

/** "3 within 10 s, 5 later": what there is of each. */
function due(within) {
  const parts = Object.entries(within).filter(([, number]) => number > 0)
    .sort(([a], [b]) => (a === "later") - (b === "later") || Number(a) - Number(b))
    .map(([seconds, number]) => `${count(number)} ${seconds === "later" ? "later" : `within ${span(1000 * Number(seconds))}`}`);
  return parts.join(", ") || h("span", { class: "quiet" }, "its broker does not say");
}

export function timers(shown, view) {
  fill(shown, serverTable({ path: "/timers", columns: COLUMNS, view, sort: "-waiting", empty: "No timed message waits.", caption: "Timed messages that wait" }));
}
