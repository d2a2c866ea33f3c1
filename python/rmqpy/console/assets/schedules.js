// Schedules: messages that a broker sends at times of a calendar.

import { change, path } from "/console/api.js";
import { to } from "/console/address.js";
import { ask, confirmation, done, failure, fill, h, link, name } from "/console/dom.js";
import { span, time, until } from "/console/format.js";
import { serverTable } from "/console/table.js";

// Which of the occurrences that were missed without a broker are sent.
const CATCH_UP = { latest: "the latest is sent", all: "all are sent", none: "none is sent" };

export function schedules(shown, view) {
  const said = h("p", {});
  // Schedule → what was changed last.
  const notes = new Map();
  const changed = (schedule, text) => {
    notes.clear();
    notes.set(schedule, text);
    fill(said);
    return list.show({});
  };
  const deleted = (schedule) => {
    fill(said, done(`The schedule ${schedule} was deleted.`));
    return list.show({});
  };
  const list = serverTable({
    path: "/schedules", columns: columns(view, notes, changed, deleted), view, sort: "name", caption: "Schedules",
    empty: "No schedules yet: create one with rmqpy schedule create …",
  });
  fill(shown, said, list);
}

const columns = (view, notes, changed, deleted) => [
  { title: "Schedule", of: "name", cell: (row) => name(row.name) },
  { title: "Times", cell: (row) => [row.cron ? [h("code", {}, row.cron), " ", row.zone] : `every ${span(Math.round(1000 * row.every))}`,
    h("div", { class: "quiet" }, `missed: ${CATCH_UP[row.catch_up] ?? row.catch_up}`)] },
  { title: "Topic", of: "topic", still: true, cell: (row) => [link(to("topics", row.topic), name(row.topic)), h("div", { class: "quiet" }, `at ${row.broker}`)] },
  { title: "State", of: "paused", cell: (row) => (row.fault ? [h("span", { class: "badge bad" }, "fails"), " ", row.fault]
    : row.paused ? h("span", { class: "badge warn" }, "paused") : h("span", { class: "badge ok" }, "active")) },
  { title: "Next", of: "next_ms", still: true, cell: (row) => [time(row.next_ms), row.next_ms ? h("div", { class: "quiet" }, until(row.next_ms - Date.now())) : null,
    row.last_ms ? h("div", { class: "quiet" }, `last ${time(row.last_ms)}`) : null] },
  { title: "Message", long: true, cell: (row) => [row.preview || "(empty)", row.tag ? [h("br", {}), h("span", { class: "quiet" }, "tag "), row.tag] : null] },
  ...(view.allowChanges ? [{ title: "", still: true, cell: (row) => [actions(row, changed, deleted), notes.has(row.name) ? done(notes.get(row.name)) : null] }] : []),
];

function actions(row, changed, deleted) {
  const place = h("span", { class: "pair" });
  const verb = row.paused ? "resume" : "pause";
  const set = async () => {
    try {
      await change("POST", path`/schedules/${row.name}/${verb}`, {});
      await changed(row.name, row.paused ? "resumed" : "paused");
    } catch (error) {
      fill(place, failure(error));
    }
  };
  fill(place, h("button", { type: "button", "aria-label": `${verb} ${row.name}`, onclick: set }, row.paused ? "Resume" : "Pause"),
    h("button", { type: "button", "aria-label": `delete ${row.name}`, onclick: () => remove(row.name, deleted) }, "Delete"));
  return place;
}

async function remove(schedule, deleted) {
  const gone = await ask(`Delete the schedule ${schedule}`, [
    h("p", { class: "box bad" }, "Its next message is recalled, and no other is sent. Messages that were sent stay in the topic."), confirmation(schedule)], "Delete",
  async () => (await change("DELETE", path`/schedules/${schedule}`, {})) ?? true);
  if (gone) await deleted(schedule);
}
