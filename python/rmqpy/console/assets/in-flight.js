// Messages that members of a group have popped and not acknowledged: the client, the number of deliveries, and the time of the next one.

import { change, get, path } from "/console/api.js";
import { to } from "/console/address.js";
import { done, failure, fill, h, link, name } from "/console/dom.js";
import { count, many, time } from "/console/format.js";
import { table } from "/console/table.js";

/** The section of a group's page; empty where nothing is in flight. */
export function inFlight(group, view) {
  const shown = h("div", {});
  const show = async (said = null) => {
    try {
      const found = await get(path`/groups/${group}/in-flight`, view.signal);
      fill(shown, said ? h("p", {}, done(said)) : null, found.messages.length ? section(group, found, view, show) : null);
    } catch (error) {
      if (error.name !== "AbortError") fill(shown, failure(error));
    }
  };
  show();
  return shown;
}

function section(group, found, view, show) {
  const rest = [
    found.unlisted ? `${many(found.unlisted, "message")} more are in flight` : "",
    found.unscanned ? `${many(found.unscanned, "older record")} were not read` : "",
  ].filter(Boolean);
  return h("section", {}, h("h2", {}, "In flight"),
    rest.length ? h("p", { class: "box warn" }, `${rest.join("; ")}.`) : null,
    table(columns(group, view, show), found.messages, "", "Messages in flight, in the order of their redelivery"));
}

const columns = (group, view, show) => [
  { title: "Visible", still: true, cell: (row) => time(row.visible_at) },
  { title: "Received", cell: (row) => time(row.popped_at) },
  { title: "Client", cell: (row) => row.client ?? h("span", { class: "quiet" }, "unknown") },
  { title: "Delivery", right: true, cell: (row) => (row.delivery_attempt === null ? "" : count(row.delivery_attempt)) },
  { title: "Topic", cell: (row) => link(to("topics", row.topic), name(row.topic)) },
  { title: "Queue", cell: (row) => `${row.broker}:${row.queue_id}` },
  { title: "Offset", right: true, cell: (row) => count(row.offset) },
  { title: "Message", long: true, cell: (row) => (row.message_id ? name(row.message_id) : h("span", { class: "quiet" }, "gone")) },
  ...(view.allowChanges ? [{ title: "", cell: (row) => showButton(group, row, show) }] : []),
];

function showButton(group, row, show) {
  const button = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      await change("POST", path`/groups/${group}/in-flight/visible`, { topic: row.topic, handle: row.handle });
      show(`The message at ${row.broker}:${row.queue_id}, offset ${count(row.offset)}, is visible to the group now.`);
    } catch (error) {
      button.replaceWith(failure(error));
    }
  } }, "Make visible now");
  return button;
}
