// Clients: connected producers and consumers.

import { to } from "/console/address.js";
import { fill, link, name } from "/console/dom.js";
import { serverTable } from "/console/table.js";

const COLUMNS = [
  { title: "Client id", of: "client_id", cell: (row) => name(row.client_id) },
  { title: "Role", of: "role", cell: (row) => row.role },
  { title: "Group", of: "group", cell: (row) => row.role === "consumer" ? link(to("groups", row.group), name(row.group)) : name(row.group) },
  { title: "Address", of: "address", cell: (row) => row.address },
  { title: "Language", of: "language", cell: (row) => row.language },
  { title: "Release", of: "version", right: true, cell: (row) => row.release },
  { title: "Brokers", of: "brokers", cell: (row) => row.brokers.join(", ") },
];

export function clients(shown, view) {
  fill(shown, serverTable({ path: "/clients", columns: COLUMNS, view, sort: "group", empty: "No client is connected.", caption: "Connected clients" }));
}
