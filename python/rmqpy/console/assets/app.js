// The shell: navigation, theme, keys, and the view of the address.

import { about } from "/console/api.js";
import { go, here, takeNotice, to } from "/console/address.js";
import { done, failure, fill, h, link } from "/console/dom.js";
import { watch } from "/console/presence.js";
import { login, logout } from "/console/login.js";
import { statusStrip } from "/console/strip.js";

// Address, title, the key that opens it after g, and what loads the function that draws it.
const VIEWS = [
  ["overview", "Overview", "o", async () => (await import("/console/overview.js")).overview],
  ["dead-letters", "Dead letters", "d", async () => (await import("/console/dead-letters.js")).deadLetters],
  ["groups", "Groups", "g", async () => (await import("/console/groups.js")).groups],
  ["topics", "Topics", "t", async () => (await import("/console/topics.js")).topics],
  ["messages", "Messages", "m", async () => (await import("/console/messages.js")).messages],
  ["timers", "Timed and half messages", "i", async () => (await import("/console/timers.js")).timers],
  ["schedules", "Schedules", "s", async () => (await import("/console/schedules.js")).schedules],
  ["jobs", "Backups and jobs", "j", async () => (await import("/console/jobs.js")).jobs],
  ["clients", "Clients", "c", async () => (await import("/console/clients.js")).clients],
  ["brokers", "Brokers", "b", async () => (await import("/console/brokers.js")).brokers],
  ["replicas", "Replicas", "r", async () => (await import("/console/replicas.js")).replicas],
  ["controllers", "Controllers", "e", async () => (await import("/console/controllers.js")).controllers],
  ["alerts", "Alerts", "l", async () => (await import("/console/alerts.js")).alerts],
  ["access", "Access", "a", async () => (await import("/console/access.js")).access],
];
const KEY_MS = 1500;
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const strip = statusStrip(document.getElementById("strip"), () => session);
let session = { namesrv: [], allow_changes: false, version: "" };
let leaving = new AbortController();

/** Show the login form, then the view of the address. */
function enter() {
  leaving.abort();
  fill(nav);
  document.title = "Log in · rmqpy";
  const shown = h("div", {});
  fill(main, h("h1", {}, "Log in"), shown);
  login(shown, start);
}

function draw() {
  leaving.abort();
  // A dialog belongs to the previous view.
  for (const each of document.querySelectorAll("dialog")) each.close();
  leaving = new AbortController();
  if (session.needs_login) {
    enter();
    return;
  }
  const { parts, query } = here();
  requestAnimationFrame(keepInSight);
  const [address, title, , load] = viewOf(parts);
  fill(nav, h("ul", {}, VIEWS.map(([each, text]) =>
    h("li", {}, h("a", { href: to(each), "aria-current": each === address ? "page" : null }, text)))));
  const resource = parts.slice(1).join(" / ");
  document.title = `${resource ? `${resource} · ` : ""}${title ?? "page not found"} · rmqpy`;
  const given = { parts: parts.slice(1), query, signal: leaving.signal, allowChanges: session.allow_changes, seesBodies: session.bodies === "shown", prometheus: session.prometheus };
  if (!load) {
    fill(main, h("h1", {}, "Page not found"), h("p", {}, link(to("overview"), "Overview")));
    return;
  }
  const shown = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  const crumbs = resource ? [link(to(address), title), " / ", h("bdi", {}, resource)] : title;
  const notice = takeNotice();
  fill(main, h("h1", {}, crumbs), notice ? h("p", { class: "box ok" }, done(notice)) : null, shown);
  load().then((view) => (given.signal.aborted ? null : view(shown, given))).catch((error) => {
    if (error.name !== "AbortError") fill(shown, failure(error));
  });
}

/** On a phone the menu is one row: the current page stays in sight. */
function keepInSight() {
  const current = nav.querySelector("[aria-current]");
  // Without a vertical move, because phones resize the page while it is scrolled.
  if (current) nav.scrollLeft = current.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
}

const viewOf = (parts) => VIEWS.find(([each]) => each === (parts[0] ?? "overview")) ?? [];

function moved() {
  draw();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function theme() {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("rmqpy-theme") ?? "auto";
  } catch { /* the browser has no storage */ }
  const button = h("button", { type: "button" });
  const use = (next) => {
    chosen = next;
    document.documentElement.dataset.theme = next;
    button.textContent = `Theme: ${next}`;
    try {
      localStorage.setItem("rmqpy-theme", next);
    } catch { /* the same */ }
  };
  button.addEventListener("click", () => use(THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length]));
  use(THEMES.includes(chosen) ? chosen : "auto");
  return button;
}

function help() {
  const row = (keys, text) => h("tr", {}, h("td", {}, h("kbd", {}, keys)), h("td", {}, text));
  const dialog = h("dialog", { "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h("table", {}, h("tbody", {},
      VIEWS.map(([, title, key]) => row(`g ${key}`, title)), row("/", "Filter of a list"), row("?", "This help"))),
    h("form", { method: "dialog" }, h("p", { class: "actions" }, h("button", {}, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

let isGoing = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (session.needs_login || event.target.closest("input, textarea, select")) return;
  const target = VIEWS.find(([, , key]) => key === event.key);
  if (isGoing && target) go(to(target[0]));
  clearTimeout(isGoing);
  isGoing = !isGoing && event.key === "g" ? setTimeout(() => { isGoing = 0; }, KEY_MS) : 0;
  if (event.key === "?") help();
  if (event.key === "/") {
    event.preventDefault();
    main.querySelector("input")?.focus();
  }
});

async function start() {
  const mode = h("span", { class: "badge" });
  const cluster = h("span", { class: "cluster" });
  const person = h("span", {});
  fill(document.getElementById("top"), h("a", { class: "brand", href: to("overview") }, "rmqpy"), cluster, mode,
    h("span", { class: "space" }), h("span", { class: "quiet zone", title: "the zone of all times on these pages" }, zone()), person, theme(), h("button", { type: "button", class: "keys", onclick: help }, "Keys"));
  // The scripts of the view load meanwhile; its drawing reports a failure.
  viewOf(here().parts)[3]?.().catch(() => {});
  try {
    session = await about();
    cluster.textContent = session.namesrv.join(", ");
    mode.textContent = session.allow_changes ? "changes allowed" : "read-only";
    mode.hidden = session.needs_login;
    if (session.user) fill(person, h("bdi", {}, session.user), " ", h("button", { type: "button", onclick: leave }, "Log out"));
    draw();
    strip.update();
  } catch (error) {
    draw();
    fill(main, failure(error));
  }
}

/** The zone of all times: "Europe/Berlin, UTC+01:00". */
function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const two = (value) => String(Math.trunc(Math.abs(value))).padStart(2, "0");
  const offset = `UTC${minutes < 0 ? "−" : "+"}${two(minutes / 60)}:${two(minutes % 60)}`;
  const named = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return named && named !== "UTC" ? `${named}, ${offset}` : offset;
}

async function leave() {
  await logout();
  start();
}

watch((since) => {
  document.body.classList.toggle("away", since !== null);
  strip.away(since);
  if (!since && !document.querySelector("dialog[open]")) draw();
});
window.addEventListener("resize", keepInSight);
window.addEventListener("hashchange", moved);
window.addEventListener("login-needed", () => {
  if (session.needs_login) return;
  session = { ...session, needs_login: true, user: null };
  start();
});
start();
