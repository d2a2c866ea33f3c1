// Overview: live rates, largest lags, dead letters, brokers, checks.

import { events, get } from "/console/api.js";
import { to } from "/console/address.js";
import { failure, fill, h, link, missing, name, wrong } from "/console/dom.js";
import { count, percent, rate, span, time } from "/console/format.js";
import { table } from "/console/table.js";

const POINTS = 60;
// Values arrive every two seconds.
const SILENCE_MS = 15_000;
const EVERY_MS = 10_000;

export async function overview(shown, view) {
  const state = h("span", { class: "quiet", role: "status" });
  const incoming = sparkline("Messages in per second");
  const outgoing = sparkline("Messages out per second");
  const counts = {
    lag: card("Pending messages", to("groups"), "large"), dead_letters: card("Dead letters", to("dead-letters"), "large"),
    topics: card("Topics", to("topics"), "small"), groups: card("Groups", to("groups"), "small"),
  };
  const absent = h("div", { "aria-live": "polite" });
  const behind = section("Furthest behind");
  const letters = section("Dead letters");
  const brokers = section("Brokers");
  const checks = section("Checks");
  fill(shown,
    absent, h("div", { class: "cards" }, counts.lag.card, counts.dead_letters.card, incoming.card, outgoing.card, counts.topics.card, counts.groups.card),
    state, h("div", { class: "two" }, behind, letters), brokers, checks);
  let silence = 0;
  // Do not show old values as current ones.
  const stale = (text) => {
    clearTimeout(silence);
    state.textContent = text;
    incoming.stop();
    outgoing.stop();
    brokers.show(h("p", { class: "quiet" }, `Unknown: ${text}`));
  };
  view.signal.addEventListener("abort", () => clearTimeout(silence));
  // Fast parts appear while the slow ones load.
  events("/overview/events", view.signal, (rates) => {
    clearTimeout(silence);
    silence = setTimeout(() => stale("no recent values"), SILENCE_MS);
    state.textContent = "live";
    incoming.add(rates.in_per_second);
    outgoing.add(rates.out_per_second);
    brokers.show(table(BROKERS, rates.brokers, "No broker is registered: start one with rmqpy broker -n …", "Brokers"));
  }, (text) => {
    if (text === "live") state.textContent = text;
    else stale(text);
  });
  const figures = () => Promise.all([
    loaded("/overview", view, [behind, letters], (found) => {
      for (const [key, each] of Object.entries(counts)) each.show(found[key]);
      fill(absent, missing(found.missing));
      counts.dead_letters.card.classList.toggle("bad", found.dead_letters > 0);
      behind.show(table(GROUPS, found.worst_groups, "No group is behind.", "Groups with the largest lag"));
      letters.show(table(LETTERS, found.worst_dead_letters, "No dead letters.", "Groups with most dead letters"));
    }, () => Object.values(counts).forEach((each) => each.show(null))),
    loaded("/health", view, [checks], (results) => {
      const wrong = results.filter((each) => each.level !== "ok");
      checks.show(table(CHECKS, wrong, `All ${count(results.length)} checks of name servers and brokers passed.`, "Failed checks"));
    }),
  ]);
  const timer = setInterval(() => { if (document.visibilityState !== "hidden") figures(); }, EVERY_MS);
  view.signal.addEventListener("abort", () => clearInterval(timer));
  await figures();
}

/** Show the reply of a path; an error appears in the first place only. */
async function loaded(path, view, places, show, otherwise) {
  try {
    show(await get(path, view.signal));
    for (const place of places) place.isShown = true;
  } catch (error) {
    // A lost server has its own line, and the last figures stay.
    if (error.status === 0 && places.every((place) => place.isShown)) return;
    otherwise?.();
    if (error.name !== "AbortError") places.forEach((place, at) => place.show(at ? h("p", {}, "–") : failure(error)));
  }
}

function section(title) {
  const body = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  const element = h("section", {}, h("h2", {}, title), body);
  element.show = (content) => fill(body, content);
  return element;
}

const GROUPS = [
  { title: "Group", cell: (row) => link(to("groups", row.group), name(row.group)) },
  { title: "Waiting", right: true, cell: (row) => count(row.lag) },
  { title: "Behind", right: true, cell: (row) => span(row.behind_ms) },
];
const LETTERS = [
  { title: "Group", cell: (row) => link(to("dead-letters", row.group), name(row.group)) },
  { title: "Messages", right: true, cell: (row) => count(row.messages) },
  { title: "Newest", still: true, cell: (row) => time(row.last_ms) },
];
const CHECKS = [
  { title: "", cell: (row) => h("span", { class: `badge ${row.level}` }, row.level === "bad" ? "bad" : "warning") },
  { title: "Check", cell: (row) => row.check },
  { title: "Found", cell: (row) => row.found },
  { title: "Advice", cell: (row) => row.advice ?? "" },
];
/** "gone since …" of a lost broker, "stopped at …" of one that an operator stopped. */
function gone({ fault }) {
  const [state, ...rest] = fault.split(" ");
  return [h("span", { class: `badge ${state === "gone" ? "bad" : "warn"}` }, state), " ", rest.join(" ")];
}

export const BROKERS = [
  { title: "Broker", of: "broker", still: true, cell: (row) => link(to("brokers", row.broker), name(row.broker)) },
  { title: "Role", of: "broker_id", still: true, cell: (row) => (row.is_master ? "master" : `slave ${row.broker_id}`) },
  { title: "Address", of: "address", cell: (row) => row.address },
  { title: "In / s", of: "in_per_second", right: true, cell: (row) => rate(row.in_per_second) },
  { title: "Out / s", of: "out_per_second", right: true, cell: (row) => rate(row.out_per_second) },
  { title: "Disk used", of: "disk_used", right: true, cell: (row) => percent(row.disk_used) },
  { title: "State", of: "fault", cell: (row) => row.gone_since ? gone(row) : row.refuses ? wrong("refuses messages", row.fault)
    : row.fault ? wrong(row.version === null ? "does not answer" : "not well", row.fault) : h("span", { class: "badge ok" }, "answers") },
  { title: "Version", of: "version", cell: (row) => row.version ?? "–" },
];

function card(title, address, size) {
  const value = h("strong", {}, "…");
  return {
    card: h("a", { class: `card ${size}`, href: address }, h("span", { class: "label" }, title), value),
    show: (number) => { value.textContent = count(number); },
  };
}

/** A card with a rate and a chart of recent ones. */
function sparkline(title) {
  const values = [];
  const value = h("strong", {}, "–");
  const line = h("polyline", { fill: "none" });
  const most = h("span", { class: "quiet" });
  const element = h("div", { class: "card wide" }, h("span", { class: "label" }, title), value,
    h("svg", { viewBox: `0 0 ${POINTS} 20`, preserveAspectRatio: "none", "aria-hidden": "true" }, line), most);
  return {
    card: element,
    add(number) {
      values.push(number);
      if (values.length > POINTS) values.shift();
      const top = Math.max(...values);
      value.textContent = rate(number);
      most.textContent = `maximum ${rate(top)} since the page was opened`;
      const x = (at) => POINTS - values.length + at;
      line.setAttribute("points", values.map((each, at) => `${x(at)},${19 - (18 * each) / (top || 1)}`).join(" "));
    },
    stop() {
      value.textContent = "–";
    },
  };
}

