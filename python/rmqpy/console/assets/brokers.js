// Brokers: their state; of one what it counts and how it is set.

import { get, path } from "/console/api.js";
import { field, fill, h } from "/console/dom.js";
import { BROKERS } from "/console/overview.js";
import { serverTable, table } from "/console/table.js";

const PAIRS = [
  { title: "Name", cell: ([key]) => h("code", {}, key) },
  { title: "Value", long: true, cell: ([, value]) => value },
];

export async function brokers(shown, view) {
  const [broker] = view.parts;
  if (broker === undefined) {
    fill(shown, serverTable({ path: "/brokers", columns: BROKERS, view, sort: "broker", empty: "No broker is registered: start one with rmqpy broker -n …", caption: "Brokers" }));
    return;
  }
  const found = await get(path`/brokers/${broker}`, view.signal);
  const settings = h("div", {});
  const runtime = h("div", {});
  const show = (wanted) => {
    const chosen = (pairs) => Object.entries(pairs).sort(([a], [b]) => a.localeCompare(b))
      .filter((pair) => pair.some((text) => text.toLowerCase().includes(wanted.toLowerCase())));
    fill(settings, table(PAIRS, chosen(found.settings), "no such setting", "Settings"));
    fill(runtime, table(PAIRS, chosen(found.runtime), "nothing of this name", "Counters and rates"));
  };
  const input = h("input", { type: "search", class: "filter", oninput: () => show(input.value) });
  fill(shown, h("div", { class: "tools" }, field("Filter", input)),
    h("div", { class: "two" },
      h("section", {}, h("h2", {}, "Settings"), settings),
      h("section", {}, h("h2", {}, "Counters and rates"), runtime)));
  show("");
}
