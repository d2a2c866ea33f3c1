// Groups: their lags, and the queues, members, problems and offset resets of one group.

import { change, get, path, query } from "/console/api.js";
import { to } from "/console/address.js";
import { ask, confirmation, done, failure, field, fill, h, link, missing, name, visible } from "/console/dom.js";
import { count, many, span } from "/console/format.js";
import { inFlight } from "/console/in-flight.js";
import { history } from "/console/chart.js";
import { sparkline } from "/console/sparkline.js";
import { serverTable, table } from "/console/table.js";

const COLUMNS = [
  { title: "Group", of: "group", cell: (row) => link(to("groups", row.group), name(row.group)) },
  { title: "Waiting", of: "lag", right: true, cell: (row) => count(row.lag) },
  { title: "Behind", right: true, cell: (row) => span(row.behind_ms) },
  { title: "Recently", cell: (row) => sparkline(row.recent, "Pending messages") },
  { title: "Topics", of: "topics", right: true, cell: (row) => count(row.topics) },
  { title: "Retries", of: "retry_max", right: true, cell: (row) => count(row.retry_max) },
  { title: "May consume", of: "is_enabled", cell: (row) => (row.is_enabled ? "yes" : h("span", { class: "badge warn" }, "no")) },
  { title: "Brokers", of: "brokers", cell: (row) => row.brokers.join(", ") },
];
const PROGRESS = [
  { title: "Topic", cell: (row) => link(to("topics", row.topic), name(row.topic)) },
  { title: "Queue", still: true, cell: (row) => `${row.broker}:${row.queue_id}` },
  { title: "Offset", right: true, cell: (row) => count(row.offset) },
  { title: "End", right: true, cell: (row) => count(row.end) },
  { title: "Waiting", right: true, cell: (row) => count(row.lag) },
  { title: "Behind", right: true, cell: (row) => span(row.behind_ms) },
];
const MOVES = [
  { title: "Queue", still: true, cell: (row) => `${row.broker}:${row.queue_id}` },
  { title: "From", right: true, cell: (row) => count(row.offset) },
  { title: "To", right: true, cell: (row) => count(row.target) },
  { title: "", cell: (row) => (row.target < row.offset ? `${count(row.offset - row.target)} again` : row.target > row.offset ? `${count(row.target - row.offset)} skipped` : "stays") },
];

export async function groups(shown, view) {
  const [group] = view.parts;
  if (group === undefined) {
    fill(shown, serverTable({ path: "/groups", columns: COLUMNS, view, sort: "-lag", empty: "No groups yet: the first consumer creates one.", caption: "Groups" }));
    return;
  }
  const found = await get(path`/groups/${group}`, view.signal);
  const lag = found.progress.reduce((whole, row) => whole + row.lag, 0);
  const behind = Math.max(0, ...found.progress.map((row) => row.behind_ms));
  fill(shown,
    h("p", { class: "facts" }, `${count(lag)} pending messages`, behind ? `, the oldest for ${span(behind)}` : "",
      `; ${many(found.members.length, "member")}. `, link(to("dead-letters", group), "Dead letters"), ", ", link(to("messages", { topic: `%RETRY%${group}` }), "messages for retry")),
    missing(found.missing), reasons(found),
    history("groups", group, view),
    h("section", {}, h("h2", {}, "Queues"), table(PROGRESS, found.progress, "The group has no offsets yet.", "Lag of each queue")),
    inFlight(group, view),
    h("section", {}, h("h2", {}, "Members"), table(members(group, view), found.members, "No member is online.", "Members")),
    resets(group, found, view),
    h("section", {}, h("h2", {}, "Settings"), Object.entries(found.settings).map(([broker, settings]) =>
      h("details", {}, h("summary", {}, broker), h("pre", {}, JSON.stringify(settings, null, 2))))));
}

/** The doctor's checks of the group: whether it progresses, and possible reasons if not. */
function reasons(found) {
  return h("div", {}, found.checks.map((each) =>
    h("div", { class: `box ${each.level}`, role: "note" }, h("p", {}, each.found), each.advice ? h("p", { class: "quiet" }, each.advice) : null)),
  found.disagreements.map((each) => h("details", { open: true }, h("summary", {}, each.client_ids.join(", ")), subscriptions(each.subscriptions))));
}

const subscriptions = (given) =>
  given ? h("ul", {}, Object.entries(given).map(([topic, text]) => h("li", {}, name(topic), " ", h("code", {}, text)))) : "not reported";

function members(group, view) {
  const stack = async (row) => {
    const text = h("pre", {}, "Loading…");
    get(path`/groups/${group}/stack` + query({ client_id: row.client_id }), view.signal)
      .then((found) => fill(text, document.createTextNode(visible(found.text, true))), (error) => fill(text, failure(error)));
    await ask(`Threads of ${row.client_id}`, text, "Close", async () => true);
  };
  return [
    { title: "Client id", long: true, cell: (row) => name(row.client_id) },
    { title: "Address", cell: (row) => row.address },
    { title: "Language", cell: (row) => row.language },
    { title: "Subscribes to", cell: (row) => subscriptions(row.subscriptions) },
    { title: "", cell: (row) => h("button", { type: "button", onclick: () => stack(row) }, "Thread stacks") },
  ];
}

/** The form that resets offsets, after a preview. */
function resets(group, found, view) {
  // The topic with the largest lag comes first; the retry topic last, because a reset usually concerns a subscribed topic.
  const isRetry = (each) => each.startsWith("%RETRY%");
  const named = [...new Set(found.progress.map((row) => row.topic))];
  const lags = new Map(named.map((each) => [each, found.progress.filter((row) => row.topic === each).reduce((whole, row) => whole + row.lag, 0)]));
  const topics = named.sort((a, b) => isRetry(a) - isRetry(b) || lags.get(b) - lags.get(a));
  if (!topics.length) return null;
  const topic = h("select", {}, topics.map((each) => h("option", { value: each }, each)));
  const place = h("select", { onchange: () => adapt() },
    h("option", { value: "time" }, "a time"), h("option", { value: "begin" }, "the first message"),
    h("option", { value: "end" }, "the end: skip pending messages"), h("option", { value: "offset" }, "an offset of one queue"));
  const moment = h("input", { type: "datetime-local", value: local(Date.now() - 86400e3) });
  const offset = h("input", { type: "number", min: "0", value: "0" });
  const queue = h("select", {});
  const moments = field("Stored from", moment);
  const offsets = h("span", { class: "pair" }, field("Queue", queue), field("Offset", offset));
  const result = h("div", { "aria-live": "polite" });
  const adapt = () => {
    moments.hidden = place.value !== "time";
    offsets.hidden = place.value !== "offset";
    fill(result);
  };
  const queues = () => {
    fill(queue, ...found.progress.filter((row) => row.topic === topic.value).map((row) =>
      h("option", { value: `${row.broker}\n${row.queue_id}` }, `${row.broker}:${row.queue_id}`)));
    fill(result);
  };
  const wanted = () => {
    const asked = { topic: topic.value };
    if (place.value === "time") asked.time = new Date(moment.value).toISOString();
    else if (place.value === "offset") {
      const [broker, id] = queue.value.split("\n");
      Object.assign(asked, { broker, queue_id: Number(id), offset: Number(offset.value) });
    } else asked.to = place.value;
    return asked;
  };
  const preview = async (event) => {
    event.preventDefault();
    try {
      const asked = wanted();
      const moves = await get(path`/groups/${group}/offsets/preview` + query(asked), view.signal);
      const isMove = moves.some((row) => row.target !== row.offset);
      fill(result, table(MOVES, moves, "The group consumes no such queue.", "Preview of the reset"),
        !isMove ? h("p", { class: "quiet" }, "The group is already at this position.") : view.allowChanges
          ? h("button", { type: "button", class: "main", onclick: () => reset(asked) }, "Reset the group")
          : h("p", { class: "quiet" }, "This console is read-only. ", h("code", {}, `rmqpy group reset ${group} --help`)));
    } catch (error) {
      fill(result, failure(error));
    }
  };
  const reset = async (asked) => {
    const moves = await ask(`Reset ${group} in ${asked.topic}`, [
      h("p", {}, "Members continue there at their next pull; fetched messages may still be handled."),
      confirmation(group)], "Reset", () => change("POST", path`/groups/${group}/offsets`, asked));
    if (moves) fill(result, h("p", { class: "box ok" }, done("The group was reset.")), table(MOVES, moves, "", "Reset queues"));
  };
  topic.addEventListener("change", queues);
  queues();
  adapt();
  return h("section", {}, h("h2", {}, "Reset offsets"),
    h("form", { class: "tools", onsubmit: preview }, field("Topic", topic), field("To", place), moments, offsets,
      h("button", { type: "submit" }, "Preview")), result);
}

function local(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60e3).toISOString().slice(0, 16);
}
