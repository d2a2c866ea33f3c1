// Lists of messages, for all views: one card each, with its body.

import { to } from "/console/address.js";
import { h, link, name, visible } from "/console/dom.js";
import { bytes, count, time } from "/console/format.js";

/** The messages as cards, or a sentence without any. */
export function messageTable(rows, empty, caption) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("ol", { class: "messages", "aria-label": caption }, rows.map((row) => h("li", { class: "message" },
    h("p", { class: "facts" }, link(to("messages", row.offset_message_id), time(row.stored_at)),
      fact(`${row.broker ? `${row.broker}:` : ""}${row.queue_id}`, "queue"), fact(count(row.offset), "offset"),
      row.tag ? fact(name(row.tag), "tag") : null, row.keys.length ? fact(row.keys.join(" "), "keys") : null, fact(bytes(row.size), "size")),
    body(row.preview))));
}

const fact = (value, title) => [" ", h("span", { class: "fact" }, h("span", { class: "quiet" }, `${title} `), value)];

/** The beginning of a body; whole JSON is laid out. */
function body(preview) {
  let text = preview || "(empty)";
  try {
    if (/^\s*[[{]/.test(preview)) text = JSON.stringify(JSON.parse(preview), null, 1).replace(/\n\s*/g, " ");
  } catch { /* cut, or not JSON */ }
  const shown = h("pre", {});
  shown.textContent = visible(text, true);
  return shown;
}
