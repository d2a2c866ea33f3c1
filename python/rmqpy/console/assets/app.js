// The shell: navigation, theme, keys, and the view that the address names.

import { about, get } from "/console/api.js";
import { go, here, to } from "/console/address.js";
import { failure, fill, h, link, visible } from "/console/dom.js";
import { overview } from "/console/overview.js";
import { deadLetters } from "/console/dead-letters.js";
import { groups } from "/console/groups.js";
import { topics } from "/console/topics.js";
import { messages } from "/console/messages.js";
import { timers } from "/console/timers.js";
import { clients } from "/console/clients.js";
import { brokers } from "/console/brokers.js";
import { replicas } from "/console/replicas.js";
import { access } from "/console/access.js";
import { watch } from "/console/presence.js";
import { login, logout } from "/console/login.js";

// Address, title, the key that leads there after g, and what draws it.
const VIEWS = [
  ["overview", "Overview", "o", overview],
  ["dead-letters", "Dead letters", "d", deadLetters],
  ["groups", "Groups", "g", groups],
  ["topics", "Topics", "t", topics],
  ["messages", "Messages", "m", messages],
  ["timers", "Timed and half messages", "i", timers],
  ["clients", "Clients", "c", clients],
  ["brokers", "Brokers", "b", brokers],
  ["replicas", "Replicas", "r", replicas],
  ["access", "Access", "a", access],
];
const KEY_MS = 1500;
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("main");
const problems = h("a", { class: "badge bad", href: to("overview"), hidden: true });
const nav = document.getElementById("nav");
const away = h("p", { class: "box bad", role: "alert", hidden: true });
let told = { namesrv: [], allow_changes: false, version: "" };
let leaving = new AbortController();

/** Ask who looks; the view that the address names comes after it. */
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
  // A dialog is about the view that is left.
  for (const each of document.querySelectorAll("dialog")) each.close();
  leaving = new AbortController();
  if (told.needs_login) {
    enter();
    return;
  }
  const { parts, query } = here();
  const [address, title, , view] = VIEWS.find(([each]) => each === (parts[0] ?? "overview")) ?? [];
  fill(nav, h("ul", {}, VIEWS.map(([each, text]) =>
    h("li", {}, h("a", { href: to(each), "aria-current": each === address ? "page" : null }, text)))));
  const resource = parts.slice(1).join(" / ");
  document.title = `${resource ? `${resource} · ` : ""}${title ?? "no such page"} · rmqpy`;
  const given = { parts: parts.slice(1), query, signal: leaving.signal, allowChanges: told.allow_changes, seesBodies: told.bodies === "shown" };
  if (!view) {
    fill(main, h("h1", {}, "There is no such page"), h("p", {}, link(to("overview"), "Overview")));
    return;
  }
  const shown = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  const crumbs = resource ? [link(to(address), title), " / ", h("bdi", {}, resource)] : title;
  fill(main, h("h1", {}, crumbs), shown);
  tellProblems(given.signal);
  Promise.resolve(view(shown, given)).catch((error) => {
    if (error.name !== "AbortError") fill(shown, failure(error));
  });
}

/** On every page: what the checks have found, in the words of the first one. */
async function tellProblems(signal) {
  try {
    const bad = (await get("/health", signal)).filter((each) => each.level === "bad");
    problems.hidden = !bad.length;
    problems.textContent = bad.length ? visible(`${bad[0].check}: ${bad[0].found}${bad.length > 1 ? `, and ${bad.length - 1} more` : ""}`) : "";
  } catch { /* the page itself says what is wrong */ }
}

function moved() {
  draw();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function theme() {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("rmqpy-theme") ?? "auto";
  } catch { /* a browser that keeps nothing */ }
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
  if (told.needs_login || event.target.closest("input, textarea, select")) return;
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
  const who = h("span", {});
  fill(document.getElementById("top"), h("a", { class: "brand", href: to("overview") }, "rmqpy"), cluster, mode, problems,
    h("span", { class: "space" }), who, theme(), h("button", { type: "button", onclick: help }, "Keys"));
  try {
    told = await about();
    cluster.textContent = told.namesrv.join(", ");
    mode.textContent = told.allow_changes ? "changes allowed" : "read-only";
    mode.hidden = told.needs_login;
    if (told.user) fill(who, h("bdi", {}, told.user), " ", h("button", { type: "button", onclick: leave }, "Log out"));
    draw();
  } catch (error) {
    draw();
    fill(main, failure(error));
  }
}

async function leave() {
  await logout();
  start();
}

main.before(away);
watch((since) => {
  document.body.classList.toggle("away", since !== null);
  away.hidden = since === null;
  away.textContent = since ? `The server of this console has not answered since ${since.toLocaleTimeString()}: what is shown is from before. Is it still running?` : "";
  if (!since && !document.querySelector("dialog[open]")) draw();
});
window.addEventListener("hashchange", moved);
window.addEventListener("login-needed", () => {
  if (told.needs_login) return;
  told = { ...told, needs_login: true, user: null };
  start();
});
start();
