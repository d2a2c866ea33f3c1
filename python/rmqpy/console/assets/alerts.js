// Alerts: rules that this server watches, the alerts that fire, silences, and receivers with a test button.

import { change, get } from "/console/api.js";
import { done, failure, fill, h, name } from "/console/dom.js";
import { count, time } from "/console/format.js";
import { table } from "/console/table.js";

const SILENCES = [["1 hour", 60], ["8 hours", 480], ["1 day", 1_440], ["7 days", 10_080]];

export async function alerts(shown, view) {
  const found = await get("/alerts", view.signal);
  if (!found.is_on) {
    fill(shown, h("p", {}, "This server watches no alert rules. Write rules and receivers (webhook, mail, command) to a TOML file and set ",
      h("code", {}, "alertsFile=alerts.toml"), " on one broker, or start ", h("code", {}, "rmqpy dashboard --alerts alerts.toml"), "."));
    return;
  }
  // Alert or rule → what was changed last.
  view.notes ??= new Map();
  const reload = (key, text) => {
    view.notes.clear();
    view.notes.set(key, text);
    return alerts(shown, view);
  };
  const { alerts: rows, receivers, rules } = found.status;
  fill(shown,
    h("section", {}, h("h2", {}, "Alerts"), table(active(view, reload), rows, "No alert is active.", "Active alerts")),
    h("section", {}, h("h2", {}, "Rules"), table(ruleColumns(view, reload), rules, "", "Rules")),
    h("section", {}, h("h2", {}, "Receivers"), table(receiverColumns(view), receivers, "", "Receivers")));
}

const active = (view, reload) => [
  { title: "State", cell: (row) => h("span", { class: `badge ${row.is_firing ? row.level : ""}` }, row.is_firing ? "firing" : "pending") },
  { title: "Subject", cell: (row) => name(row.subject) },
  { title: "Found", long: true, cell: (row) => [row.found, h("br", {}), h("span", { class: "quiet" }, row.advice)] },
  { title: "Since", still: true, cell: (row) => time(row.since_ms) },
  { title: "Rule", cell: (row) => row.rule },
  { title: "Silent until", still: true, cell: (row) => time(row.silent_until_ms) },
  ...(view.allowChanges ? [{ title: "", cell: (row) => [silence(row.id, row.silent_until_ms !== null, reload), said(view, row.id)] }] : []),
];

const ruleColumns = (view, reload) => [
  { title: "Rule", cell: (row) => row },
  ...(view.allowChanges ? [{ title: "", cell: (row) => [silence(row, false, reload), said(view, row)] }] : []),
];

const receiverColumns = (view) => [
  { title: "Receiver", cell: (row) => name(row.name) },
  { title: "Target", cell: (row) => row.target },
  { title: "Waiting notices", right: true, cell: (row) => count(row.pending) },
  { title: "State", long: true, cell: (row) => (row.fault ? [h("span", { class: "badge bad" }, "fails"), " ", row.fault] : h("span", { class: "badge ok" }, "no failure")) },
  ...(view.allowChanges ? [{ title: "", cell: (row) => tester(row.name) }] : []),
];

const said = (view, key) => (view.notes.has(key) ? done(view.notes.get(key)) : null);

/** A choice of silences, or the end of one. */
function silence(key, isSilent, reload) {
  const place = h("span", { class: "pair" });
  const set = async (minutes, text) => {
    try {
      await change("POST", "/alerts/silence", { key, minutes });
      await reload(key, text);
    } catch (error) {
      fill(place, failure(error));
    }
  };
  if (isSilent) fill(place, h("button", { type: "button", onclick: () => set(0, "silence ended") }, "End silence"));
  else {
    const length = h("select", { "aria-label": `silence of ${key}` }, SILENCES.map(([title, minutes]) => h("option", { value: String(minutes) }, title)));
    fill(place, length, h("button", { type: "button", onclick: () => set(Number(length.value), `silent for ${length.selectedOptions[0].textContent}`) }, "Silence"));
  }
  return place;
}

function tester(receiver) {
  const result = h("span", { role: "status" });
  const button = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    fill(result);
    try {
      await change("POST", "/alerts/test", { receiver });
      fill(result, done("a test was sent"));
    } catch (error) {
      fill(result, failure(error));
    }
    button.disabled = false;
  } }, "Send a test");
  return [button, result];
}
