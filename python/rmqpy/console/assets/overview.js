// Overview: rates as they change, what is worst behind, dead letters, brokers, checks.

import { events, get } from "/console/api.js";
import { to } from "/console/address.js";
import { failure, fill, h, link, missing, name, wrong } from "/console/dom.js";
import { count, percent, rate, span, time } from "/console/format.js";
import { table } from "/console/table.js";

const POINTS = 60;
// Figures come every two seconds.
const SILENCE_MS = 15_000;

export async function overview(shown, view) {
  const state = h("span", { class: "quiet", role: "status" });
  const incoming = sparkline("Messages in, a second");
  const outgoing = sparkline("Messages out, a second");
  const counts = {
    lag: card("Waiting for groups", to("groups")), dead_letters: card("Dead letters", to("dead-letters")),
    topics: card("Topics", to("topics")), groups: card("Groups", to("groups")),
  };
  const absent = h("div", { "aria-live": "polite" });
  const behind = section("Furthest behind");
  const letters = section("Dead letters");
  const brokers = section("Brokers");
  const checks = section("Checks");
  fill(shown,
    h("div", { class: "cards" }, incoming.card, outgoing.card, Object.values(counts).map((each) => each.card)),
    state, absent, h("div", { class: "two" }, behind, letters), brokers, checks);
  let silence = 0;
  // What was true a while ago is not shown as if it were now.
  const stale = (text) => {
    clearTimeout(silence);
    state.textContent = text;
    incoming.stop();
    outgoing.stop();
    brokers.show(h("p", { class: "quiet" }, `Not known: ${text}`));
  };
  view.signal.addEventListener("abort", () => clearTimeout(silence));
  // What is quick is shown while the rest is counted.
  events("/overview/events", view.signal, (rates) => {
    clearTimeout(silence);
    silence = setTimeout(() => stale("no figures have come for a while"), SILENCE_MS);
    state.textContent = "live";
    incoming.add(rates.in_per_second);
    outgoing.add(rates.out_per_second);
    brokers.show(table(BROKERS, rates.brokers, "No broker is registered: start one with rmqpy broker -n …", "Brokers"));
  }, (text) => {
    if (text === "live") state.textContent = text;
    else stale(text);
  });
  await Promise.all([
    loaded("/overview", view, [behind, letters], (found) => {
      for (const [key, each] of Object.entries(counts)) each.show(found[key]);
      fill(absent, missing(found.missing));
      counts.dead_letters.card.classList.toggle("bad", found.dead_letters > 0);
      behind.show(table(GROUPS, found.worst_groups, "No group is behind.", "Groups with the largest lag"));
      letters.show(table(LETTERS, found.worst_dead_letters, "There are no dead letters.", "Groups with most dead letters"));
    }, () => Object.values(counts).forEach((each) => each.show(null))),
    loaded("/health", view, [checks], (results) => {
      const wrong = results.filter((each) => each.level !== "ok");
      checks.show(table(CHECKS, wrong, `All ${count(results.length)} checks of name servers and brokers are well.`, "Checks that found something"));
    }),
  ]);
}

/** Show what a path answers, or in the first place why it does not. */
async function loaded(path, view, places, show, otherwise) {
  try {
    show(await get(path, view.signal));
  } catch (error) {
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
export const BROKERS = [
  { title: "Broker", of: "broker", still: true, cell: (row) => link(to("brokers", row.broker), name(row.broker)) },
  { title: "Role", of: "broker_id", still: true, cell: (row) => (row.is_master ? "master" : `slave ${row.broker_id}`) },
  { title: "Address", of: "address", cell: (row) => row.address },
  { title: "In / s", of: "in_per_second", right: true, cell: (row) => rate(row.in_per_second) },
  { title: "Out / s", of: "out_per_second", right: true, cell: (row) => rate(row.out_per_second) },
  { title: "Disk used", of: "disk_used", right: true, cell: (row) => percent(row.disk_used) },
  { title: "State", of: "fault", cell: (row) => row.refuses ? wrong("takes no messages", row.fault)
    : row.fault ? wrong(row.version === null ? "does not answer" : "not well", row.fault) : h("span", { class: "badge ok" }, "answers") },
  { title: "Version", of: "version", cell: (row) => row.version ?? "–" },
];

function card(title, address) {
  const value = h("strong", {}, "…");
  return {
    card: h("a", { class: "card", href: address }, h("span", { class: "label" }, title), value),
    show: (number) => { value.textContent = count(number); },
  };
}

/** A card with a rate and a line of the last ones. */
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
      most.textContent = `at most ${rate(top)} since the page was opened`;
      const x = (at) => POINTS - values.length + at;
      line.setAttribute("points", values.map((each, at) => `${x(at)},${19 - (18 * each) / (top || 1)}`).join(" "));
    },
    stop() {
      value.textContent = "–";
    },
  };
}

