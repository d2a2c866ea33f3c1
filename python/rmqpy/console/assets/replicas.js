// Replicas: masters and slaves of each name, with the lag of each slave.

import { to } from "/console/address.js";
import { fill, h, link, name, wrong } from "/console/dom.js";
import { bytes, count, span } from "/console/format.js";
import { serverTable } from "/console/table.js";

const COLUMNS = [
  { title: "Broker", of: "broker", still: true, cell: (row) => link(to("brokers", row.broker), name(row.broker)) },
  { title: "Role", of: "broker_id", still: true, cell: (row) => (row.is_master ? "master" : `slave ${row.broker_id}`) },
  { title: "Address", of: "address", cell: (row) => row.address },
  { title: "Log ends at", of: "log_end", right: true, cell: (row) => count(row.log_end) },
  { title: "Behind", of: "behind_bytes", right: true, cell: (row) => (row.behind_bytes === null ? "–" : `${row.log_end === null ? "at least " : ""}${bytes(row.behind_bytes)}`) },
  { title: "in time", of: "behind_seconds", right: true, cell: (row) => (row.behind_seconds === null ? "–" : span(Math.round(1000 * row.behind_seconds)) ) },
  { title: "Last contact", of: "silent_seconds", right: true, cell: (row) => (row.silent_seconds === null ? "–" : `${span(Math.max(1, Math.round(1000 * row.silent_seconds)))} ago`) },
  { title: "Slaves", of: "slaves", right: true, cell: (row) => count(row.slaves) },
  { title: "State", of: "fault", long: true, cell: state },
];

function state(row) {
  if (row.is_diverged) return wrong("diverged", row.fault);
  if (row.refuses) return wrong("refuses messages", row.fault);
  if (row.log_end === null && row.fault) return wrong("does not answer", row.fault.replace(/^does not answer at [^,]*, /, ""));
  if (row.fault) return wrong(row.is_master ? "not well" : "does not follow", row.fault);
  if (row.is_master) return h("span", { class: "badge ok" }, "leads");
  if (row.is_starting) return "starts";
  if (row.in_sync === null) return "not known";
  return row.in_sync ? h("span", { class: "badge ok" }, "in sync") : h("span", { class: "badge warn" }, "not in sync");
}

export function replicas(shown, view) {
  fill(shown, serverTable({ path: "/replicas", columns: COLUMNS, view, sort: "broker", empty: "No broker is registered: start one with rmqpy broker -n …", caption: "Masters and slaves" }));
}
