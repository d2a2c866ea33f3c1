// Brokers: their state; history, settings and counters of one broker.

import { change, get, path } from "/console/api.js";
import { history } from "/console/chart.js";
import { ask, confirmation, done, failure, field, fill, h } from "/console/dom.js";
import { many } from "/console/format.js";
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
  const state = h("div", {});
  const details = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  const charts = h("div", {});
  fill(shown, state, charts, details);
  const rows = (await get("/brokers?size=500&filter=" + encodeURIComponent(broker), view.signal)).rows.filter((row) => row.broker === broker);
  fill(state, table(BROKERS, rows, "No broker of this name is registered.", "State"));
  if (!rows.some((row) => row.is_master && !row.gone_since)) {
    fill(details, h("p", { class: "quiet" }, "Charts, settings and counters are those of the master, and none is registered."));
    return;
  }
  fill(charts, history("brokers", broker, view));
  try {
    await settingsAndCounters(details, broker, view);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    fill(details, failure(error));
  }
}

/** Settings and counters, of which only those that contain the searched text are shown. */
async function settingsAndCounters(shown, broker, view) {
  const found = await get(path`/brokers/${broker}`, view.signal);
  // Setting → what was changed last.
  const notes = new Map();
  const fixed = new Set(found.fixed);
  const columns = view.allowChanges ? [...PAIRS, { title: "", cell: ([key, value]) => [
    fixed.has(key) ? h("span", { class: "quiet" }, "needs a restart: set it in the configuration")
      : h("button", { type: "button", "aria-label": `change ${key}`, onclick: () => edit(key, value) }, "Change"),
    notes.has(key) ? [" ", done(notes.get(key))] : null] }] : PAIRS;
  const edit = async (key, value) => {
    const input = h("input", { value, autocomplete: "off" });
    const made = await ask(`Change ${key} of ${broker}`, [
      h("p", {}, "The running broker applies it immediately and writes it to its file."),
      field("Value", input), confirmation(broker)], "Change",
    async () => (await change("POST", path`/brokers/${broker}/settings`, { settings: { [key]: input.value } })) ?? true);
    if (made) {
      Object.assign(found.settings, (await get(path`/brokers/${broker}`, view.signal)).settings);
      notes.clear();
      notes.set(key, `changed to ${found.settings[key]}`);
      // The changed setting stays in sight.
      if (!filter.value) filter.value = key;
      show(filter.value);
    }
  };
  const results = h("div", {});
  const part = (title, columnsOf, pairs, wanted, empty) => {
    const chosen = Object.entries(pairs).sort(([a], [b]) => a.localeCompare(b))
      .filter((pair) => pair.some((text) => text.toLowerCase().includes(wanted.toLowerCase())));
    return h("details", { open: wanted !== "" }, h("summary", {}, `${title}: ${many(chosen.length, "entry").replace("entrys", "entries")}`), table(columnsOf, chosen, empty, title));
  };
  const show = (wanted) => fill(results,
    part("Settings", columns, found.settings, wanted, "no such setting"),
    part("Counters and rates", PAIRS, found.runtime, wanted, "no such counter"));
  const filter = h("input", { type: "search", class: "filter", placeholder: "fileReservedTime", oninput: () => show(filter.value) });
  fill(shown, h("section", {}, h("h2", {}, "Settings and counters"), h("div", { class: "tools" }, field("Filter", filter)), results));
  show("");
}
