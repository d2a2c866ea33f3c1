// Dead letters: the groups that have some, and the letters of one group with causes, selection, edits and resends.

import { change, get, path } from "/console/api.js";
import { to } from "/console/address.js";
import { ask, field, fill, h, link, name } from "/console/dom.js";
import { bytes, count, time } from "/console/format.js";
import { serverTable, table } from "/console/table.js";

const COLUMNS = [
  { title: "Group", of: "group", cell: (row) => link(to("dead-letters", row.group), name(row.group)) },
  { title: "Messages", of: "messages", right: true, cell: (row) => count(row.messages) },
  { title: "Newest", of: "last_ms", right: true, cell: (row) => time(row.last_ms) },
];
const PAGE = 100;
const RATE = 20;

const place = (row) => `${row.broker}:${row.queue_id}:${row.offset}`;

export async function deadLetters(shown, view) {
  const [group] = view.parts;
  if (group === undefined) {
    fill(shown, serverTable({ path: "/dead-letters", columns: COLUMNS, view, sort: "-messages", empty: "No group has dead letters.", caption: "Groups with dead letters" }));
    return;
  }
  const chosen = new Map();
  // Resends of this page, which brokers report with a delay.
  const sent = new Set();
  const sentAgain = (row) => {
    if (!row.resent_at && !sent.has(place(row))) return "no";
    return h("span", { class: "badge ok" }, row.resent_at ? `sent ${time(row.resent_at)}` : "sent just now");
  };
  const boxes = new Map();
  const causes = h("div", { class: "chips" });
  const results = h("div", { "aria-live": "polite", tabindex: "-1" });
  const button = h("button", { type: "button", class: "main", disabled: true, onclick: () => resend() }, "Send again");
  const all = h("button", { type: "button", disabled: true, onclick: () => mark(true) }, "Select this page");
  const none = h("button", { type: "button", onclick: () => mark(false) }, "Select none");

  const changed = () => {
    button.disabled = !chosen.size;
    button.textContent = chosen.size ? `Send ${count(chosen.size)} again` : "Send again";
  };
  const mark = (isChosen) => {
    if (!isChosen) chosen.clear();
    for (const [row, box] of boxes.values()) {
      box.checked = isChosen;
      if (isChosen) chosen.set(place(row), row);
    }
    changed();
  };
  const box = (row) => {
    const input = h("input", {
      type: "checkbox", "aria-label": `select the letter at offset ${row.offset}`,
      onchange: () => {
        if (input.checked) chosen.set(place(row), row);
        else chosen.delete(place(row));
        changed();
      },
    });
    input.checked = chosen.has(place(row));
    boxes.set(place(row), [row, input]);
    return input;
  };
  const columns = [
    ...(view.allowChanges ? [{ title: "", cell: box }] : []),
    { title: "Stored", of: "stored_at", still: true, cell: (row) => time(row.stored_at) },
    { title: "Topic", of: "topic", cell: (row) => link(to("topics", row.topic), name(row.topic)) },
    { title: "Cause", of: "cause", long: true, cell: (row) => row.cause ?? "not reported" },
    { title: "Deliveries", of: "attempts", right: true, cell: (row) => count(row.attempts) },
    { title: "Message", of: "preview", long: true, cell: (row) => link(to("messages", row.offset_message_id), row.preview || "(empty)") },
    { title: "Size", of: "size", right: true, cell: (row) => bytes(row.size) },
    { title: "Sent again", of: "resent_at", still: true, cell: (row) => sentAgain(row) },
  ];
  const list = serverTable({
    path: path`/dead-letters/${group}`, columns, view, sort: "-stored_at", size: PAGE,
    empty: "The group has no dead letters.", caption: "Dead letters, the newest thousand at most",
    shown: (rows) => {
      for (const each of [...boxes.keys()]) if (!rows.some((row) => place(row) === each)) boxes.delete(each);
      countCauses(rows);
      all.disabled = !rows.length;
    },
  });
  // The number of letters on this page by cause. Choosing a cause filters all letters by it.
  const countCauses = (rows) => {
    const found = new Map();
    for (const row of rows) found.set(row.cause ?? "", (found.get(row.cause ?? "") ?? 0) + 1);
    fill(causes, found.size < 2 ? [] : [...found].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([cause, number]) =>
      h("button", { type: "button", disabled: !cause, onclick: () => only(cause) }, `${cause || "not reported"} (${number})`)));
  };
  const only = (cause) => {
    list.querySelector("input.filter").value = cause;
    list.show({ filter: cause, page: 1 });
  };

  async function resend() {
    const rows = [...chosen.values()];
    const target = h("select", {}, h("option", { value: "group" }, `only group ${group}`),
      h("option", { value: "origin" }, "the original topic, for every group"));
    const rate = h("input", { type: "number", min: "1", max: "1000", value: String(RATE), required: true });
    const edited = rows.length === 1 ? await editor(rows[0], view) : null;
    const find = h("input", { autocomplete: "off", spellcheck: "false" });
    const replace = h("input", { autocomplete: "off", spellcheck: "false" });
    const everywhere = rows.length > 1 && view.seesBodies ? h("fieldset", {}, h("legend", {}, "Edit all bodies"),
      field("Replace", find), field("with", replace), h("p", { class: "quiet" }, "Letters without the text are not sent.")) : null;
    const again = rows.filter((row) => row.resent_at || sent.has(place(row))).length;
    const progress = h("p", { role: "status" });
    const sentRows = await ask(`Send ${count(rows.length)} dead letters of ${group} again`, [
      h("p", {}, "They stay in the dead-letter topic, marked as sent. A group that consumes in order cannot receive messages sent only to it."),
      again ? h("p", { class: "box warn" }, `${count(again)} of them were sent again before.`) : null,
      field("To", target), field("Messages per second", rate), edited?.element, everywhere, progress,
    ], "Send", async () => {
      const limit = Number(rate.value);
      // A few seconds' worth per request, to show progress.
      const piece = Math.max(1, Math.min(100, 2 * limit));
      const outcomes = [];
      for (let at = 0; at < rows.length; at += piece) {
        const letters = rows.slice(at, at + piece).map((row) => ({
          broker: row.broker, queue_id: row.queue_id, offset: row.offset, ...(edited?.value() ?? {}),
        }));
        outcomes.push(...await change("POST", path`/dead-letters/${group}/resend`, { letters, to_origin: target.value === "origin", rate: limit,
          ...(find.value ? { find: find.value, replace: replace.value } : {}) }));
        progress.textContent = `${count(outcomes.length)} of ${count(rows.length)}`;
      }
      return outcomes;
    });
    if (!sentRows) return;
    for (const each of sentRows) if (!each.fault) sent.add(place(each));
    const failed = sentRows.filter((each) => each.fault);
    fill(results, h("div", { class: failed.length ? "box warn" : "box ok", role: "status" },
      `${count(sentRows.length - failed.length)} of ${count(sentRows.length)} were sent again.`),
      h("details", { open: failed.length > 0 }, h("summary", {}, "Result for each"), table(RESULTS, sentRows, "", "Results")));
    chosen.clear();
    changed();
    // The focused button is disabled now.
    results.focus();
    list.show({});
  }

  fill(shown,
    h("p", { class: "facts" }, link(to("groups", group), "The group")),
    view.allowChanges ? h("div", { class: "tools" }, button, all, none) : h("p", { class: "quiet" }, "This console only reads. To send them again: ",
      h("code", {}, `rmqpy dlq resend ${group} --all`)),
    results, causes, list);
}

const RESULTS = [
  { title: "Queue", still: true, cell: (row) => `${row.broker}:${row.queue_id}` },
  { title: "Offset", right: true, cell: (row) => count(row.offset) },
  { title: "Result", cell: (row) => (row.fault ? h("span", { class: "badge bad" }, `not sent: ${row.fault}`) : link(to("messages", row.sent_as), `sent as ${row.sent_as}`)) },
];

/** The body of one letter, for an edit before it is sent. */
async function editor(row, view) {
  const message = await get(path`/messages/${row.offset_message_id}`, view.signal);
  if (message.text === null || message.is_cut || message.body_view !== "shown") {
    return { element: h("p", { class: "quiet" }, "The body is not text, too long, or hidden from you: it is sent unchanged."), value: () => ({}) };
  }
  const text = h("textarea", { rows: "8", spellcheck: "false" });
  text.value = message.text;
  return { element: field("Body", text), value: () => (text.value === message.text ? {} : { body: text.value }) };
}

