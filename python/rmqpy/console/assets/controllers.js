// Controllers: which of them leads, and for each broker of a set its role, epoch, place in the in-sync set, and lease.

import { get } from "/console/api.js";
import { to } from "/console/address.js";
import { failure, fill, h, link, missing, name, wrong } from "/console/dom.js";
import { count } from "/console/format.js";
import { table } from "/console/table.js";

const EVERY_MS = 5_000;

const CONTROLLERS = [
  { title: "Controller", still: true, cell: (row) => row.address },
  { title: "State", long: true, cell: (row) => (row.fault ? wrong("does not answer", row.fault)
    : row.is_leader ? h("span", { class: "badge ok" }, "leads")
      : row.leader_address ? "follows" : wrong("has no leader", "no master is elected until most controllers of the group answer")) },
  { title: "Group", cell: (row) => row.group ?? "–" },
  { title: "Leader", cell: (row) => (row.leader_address ? `${row.leader_id}, ${row.leader_address}` : "–") },
];
const REPLICAS = [
  { title: "Broker", still: true, cell: (row) => link(to("replicas", { filter: row.broker }), name(row.broker)) },
  { title: "Role", still: true, cell: (row) => (row.is_master ? "master" : `slave ${row.broker_id}`) },
  { title: "Address", still: true, cell: (row) => row.address },
  { title: "In-sync set", cell: (row) => (row.in_sync ? h("span", { class: "badge ok" }, "in sync") : h("span", { class: "badge warn" }, "not in sync")) },
  { title: "Heartbeats", cell: (row) => (row.is_alive === null ? "–" : row.is_alive ? h("span", { class: "badge ok" }, "arrive") : h("span", { class: "badge bad" }, "missing")) },
  { title: "Lease left", right: true, cell: lease },
  { title: "Epoch", right: true, cell: (row) => count(row.is_master ? row.epoch : null) },
  { title: "Epoch of the set", right: true, cell: (row) => count(row.is_master ? row.in_sync_epoch : null) },
];

function lease(row) {
  if (!row.is_master) return "–";
  if (row.lease_seconds === null) return "none";
  return row.lease_seconds > 0 ? `${row.lease_seconds.toFixed(1)} s` : h("span", { class: "badge bad" }, "ended");
}

export async function controllers(shown, view) {
  const show = async () => {
    try {
      const found = await get("/elections", view.signal);
      fill(shown, missing(found.missing), ...content(found));
    } catch (error) {
      if (error.name !== "AbortError") fill(shown, failure(error));
    }
  };
  // Leases live for seconds.
  const timer = setInterval(() => { if (document.visibilityState !== "hidden") show(); }, EVERY_MS);
  view.signal.addEventListener("abort", () => clearInterval(timer));
  await show();
}

function content(found) {
  if (!found.controllers.length && !found.unknown.length) {
    const none = found.missing.length ? "No broker that answers" : "No broker";
    return [h("p", {}, `${none} is in controller mode: masters are promoted by hand. To have them elected, start `,
      h("code", {}, "rmqpy controller"), " and set ", h("code", {}, "enableControllerMode=true"), " and ", h("code", {}, "controllerAddr=HOST:PORT"), " on every broker.")];
  }
  const headless = [...new Set(found.replicas.map((row) => row.broker))].filter((broker) => !found.replicas.some((row) => row.broker === broker && row.is_master));
  return [
    headless.length ? h("div", { class: "box bad", role: "alert" }, "No master is elected for ", headless.join(", "), ": it takes no messages until a replica in sync is back.") : null,
    found.unknown.length ? h("div", { class: "box warn", role: "note" }, "No controller reports ", found.unknown.join(", "), ".") : null,
    h("section", {}, h("h2", {}, "Controllers"), table(CONTROLLERS, found.controllers, "The brokers name no controller.", "Controllers")),
    h("section", {}, h("h2", {}, "Masters and replicas"), table(REPLICAS, found.replicas, "No controller reports a broker.", "Masters and replicas of every broker set")),
  ];
}
