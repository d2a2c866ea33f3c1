// A list of messages, wherever one is shown.

import { to } from "/console/address.js";
import { link, name } from "/console/dom.js";
import { bytes, count, time } from "/console/format.js";
import { table } from "/console/table.js";

const COLUMNS = [
  { title: "Stored", still: true, cell: (row) => time(row.stored_at) },
  { title: "Queue", still: true, cell: (row) => `${row.broker ? `${row.broker}:` : ""}${row.queue_id}` },
  { title: "Offset", right: true, cell: (row) => count(row.offset) },
  { title: "Message", long: true, cell: (row) => link(to("messages", row.offset_message_id), row.preview || "(empty)") },
  { title: "Tag", cell: (row) => (row.tag ? name(row.tag) : "") },
  { title: "Keys", cell: (row) => row.keys.join(" ") },
  { title: "Size", right: true, cell: (row) => bytes(row.size) },
];

export const messageTable = (rows, empty, caption) => table(COLUMNS, rows, empty, caption);
