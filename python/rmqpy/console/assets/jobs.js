// Jobs: backups of brokers, and the positions of archives and Spark queries, as far as brokers know them.

import { to } from "/console/address.js";
import { fill, h, link, name } from "/console/dom.js";
import { bytes, count, rate, span, time } from "/console/format.js";
import { sparkline } from "/console/sparkline.js";
import { serverTable } from "/console/table.js";

const BACKUPS = [
  { title: "Broker", of: "broker", still: true, cell: (row) => link(to("brokers", row.broker), name(row.broker)) },
  { title: "Folder", of: "folder", long: true, cell: (row) => name(row.folder) },
  { title: "Last complete run", of: "ended_at", still: true, cell: (row) => (row.ended_at ? [time(row.ended_at), h("div", { class: "quiet" }, age(row.ended_at))] : "none") },
  { title: "New since then", of: "behind_bytes", right: true, cell: (row) => (row.behind_bytes === null ? "–" : bytes(row.behind_bytes)) },
  { title: "State", of: "began_at", cell: (row) => (row.is_complete ? h("span", { class: "badge ok" }, "complete")
    : [h("span", { class: "badge warn" }, "not complete"), ` a run began ${age(row.began_at)}, and is in progress or was interrupted`]) },
  { title: "From", of: "address", cell: (row) => row.address },
];
const POSITIONS = [
  { title: "Group", of: "group", cell: (row) => link(to("groups", row.group), name(row.group)) },
  { title: "Pending", of: "lag", right: true, cell: (row) => count(row.lag) },
  { title: "Behind", right: true, cell: (row) => span(row.behind_ms) },
  { title: "Out / s recently", cell: (row) => sparkline(row.recent, "Messages out per second", rate) },
  { title: "Topics", of: "topics", right: true, cell: (row) => count(row.topics) },
  { title: "Brokers", cell: (row) => row.brokers.join(", ") },
];

const age = (moment) => `${span(Math.max(1, Date.now() - new Date(moment)))} ago`;

export function jobs(shown, view) {
  const second = { view: { ...view, query: new URLSearchParams() }, isSecond: true };
  fill(shown,
    h("section", {}, h("h2", {}, "Backups"),
      h("p", { class: "facts" }, "Folders of ", h("code", {}, "rmqpy backup"), ", as their runs reported them to the master. To back up a broker, run ",
        h("code", {}, "rmqpy backup FOLDER --broker NAME"), ", for instance every hour from cron. Copies made by other means are unknown here."),
      serverTable({ path: "/backups", columns: BACKUPS, view, sort: "broker", empty: "None known: no run of rmqpy backup was reported to these brokers.", caption: "Backups" })),
    h("section", {}, h("h2", {}, "Archives and Spark queries"),
      h("p", { class: "facts" }, "Both keep their position themselves, and brokers know it if it is committed under a group: ",
        h("code", {}, "rmqpy archive TOPIC DESTINATION --group NAME"), "; in Spark the option ", h("code", {}, "commitOffsets=true"), " with ", h("code", {}, "consumerGroup"),
        ", or ", h("code", {}, "LagListener(group=…)"), ". These groups have no members. Groups whose consumers are stopped are in the list, too."),
      serverTable({ path: "/positions", columns: POSITIONS, ...second, sort: "-lag", empty: "None known: every group with a position has members.", caption: "Groups with a position and without members" })));
}
