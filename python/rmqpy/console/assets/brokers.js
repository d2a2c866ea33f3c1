// Brokers: their state; of one what it counts and how it is set.

import { change, get, path } from "/console/api.js";
import { ask, confirmation, field, fill, h } from "/console/dom.js";
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
  const columns = view.allowChanges ? [...PAIRS, { title: "", cell: ([key, value]) =>
    h("button", { type: "button", "aria-label": `change ${key}`, onclick: () => edit(broker, key, value) }, "Change") }] : PAIRS;
  const edit = async (server, key, value) => {
    const input = h("input", { value, autocomplete: "off" });
    const done = await ask(`Change ${key} of ${server}`, [
      h("p", {}, "The running broker takes it at once and writes it into its file; it refuses what it cannot change while it runs."),
      field("Value", input), confirmation(server)], "Change",
    async () => (await change("POST", path`/brokers/${server}/settings`, { settings: { [key]: input.value } })) ?? true);
    if (done) {
      Object.assign(found.settings, (await get(path`/brokers/${server}`, view.signal)).settings);
      show(filter.value);
    }
  };
  const settings = h("div", {});
  const runtime = h("div", {});
  const show = (wanted) => {
    const chosen = (pairs) => Object.entries(pairs).sort(([a], [b]) => a.localeCompare(b))
      .filter((pair) => pair.some((text) => text.toLowerCase().includes(wanted.toLowerCase())));
    fill(settings, table(columns, chosen(found.settings), "no such setting", "Settings"));
    fill(runtime, table(PAIRS, chosen(found.runtime), "nothing of this name", "Counters and rates"));
  };
  const filter = h("input", { type: "search", class: "filter", oninput: () => show(filter.value) });
  fill(shown, h("div", { class: "tools" }, field("Filter", filter)),
    h("section", {}, h("h2", {}, "Settings"), settings),
    h("section", {}, h("h2", {}, "Counters and rates"), runtime));
  show("");
}
