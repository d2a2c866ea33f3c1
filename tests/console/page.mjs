// A page without a browser: as much of a document as the scripts of the console use. `node page.mjs ASSETS CASE` prints JSON.

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [assets, scenario] = process.argv.slice(2);

class Target {
  #listeners = new Map();
  addEventListener(name, listener) {
    this.#listeners.set(name, [...(this.#listeners.get(name) ?? []), listener]);
  }
  dispatchEvent(event) {
    for (const each of this.#listeners.get(event.type) ?? []) each(event);
  }
}

class Node extends Target {
  parent = null;
  remove() {
    if (this.parent) this.parent.children = this.parent.children.filter((each) => each !== this);
    this.parent = null;
  }
}

class Text extends Node {
  constructor(text) {
    super();
    this.textContent = text;
  }
}

class Element extends Node {
  children = [];
  attributes = {};
  hidden = false;
  #value = null;
  constructor(name) {
    super();
    this.localName = name;
  }
  get dataset() { return (this.data ??= {}); }
  get classList() {
    return { toggle: (name, is) => { this.classes = { ...this.classes, [name]: is }; } };
  }
  setAttribute(key, value) { this.attributes[key] = value; if (key === "hidden") this.hidden = true; }
  append(...given) {
    for (const each of given) {
      each.remove();
      each.parent = this;
      this.children.push(each);
    }
  }
  before(given) { given.parent = this.parent; }
  replaceChildren(...given) {
    for (const each of [...this.children]) each.remove();
    this.append(...given);
  }
  get textContent() { return this.children.map((each) => each.textContent).join(""); }
  set textContent(text) { this.replaceChildren(new Text(text)); }
  get value() { return this.#value ?? (this.localName === "select" ? this.all("option")[0]?.value : "") ?? ""; }
  set value(given) { this.#value = given; }
  focus() {}
  showModal() { this.attributes.open = ""; }
  close() {
    delete this.attributes.open;
    this.dispatchEvent({ type: "close" });
  }
  all(name) {
    return this.children.flatMap((each) => (each instanceof Element ? [...(each.localName === name ? [each] : []), ...each.all(name)] : []));
  }
  querySelectorAll(selector) { return this.all(selector); }
  querySelector(selector) { return this.all(selector.replace("[open]", ""))[0] ?? null; }
}

class EventSource extends Target {
  static CLOSED = 2;
  static open = [];
  readyState = 1;
  constructor(address) {
    super();
    this.address = address;
    EventSource.open.push(this);
  }
  close() { this.readyState = EventSource.CLOSED; }
  tell(type, data) { this.dispatchEvent({ type, data: JSON.stringify(data) }); }
}

const body = new Element("body");
const places = Object.fromEntries(["top", "nav", "strip", "main"].map((id) => [id, new Element(id)]));
body.append(...Object.values(places));
const page = new Target();
const answers = {
  "/console/about.json": { namesrv: ["127.0.0.1:9876"], allow_changes: true, version: "1", bodies: "shown" },
  "/api/v1/overview": { lag: 0, dead_letters: 0, topics: 1, groups: 1, missing: [], worst_groups: [], worst_dead_letters: [] },
  "/api/v1/health": [],
  "/api/v1/status": {
    level: "bad", more: 0, accepting: 1, lag: 3, dead_letters: 0,
    items: [
      { level: "bad", check: "master of broker-b", found: "broker-b has no master: it is unreachable", advice: "start it, or promote the slave",
        steps: [{ kind: "promote", name: "broker-b", broker_id: 1 }, { kind: "replicas", name: "broker-b", broker_id: 0 }] },
      { level: "bad", check: "role of broker-c", found: "broker-c does not reach its controllers", advice: "start a majority",
        steps: [{ kind: "controllers", name: "", broker_id: 0 }] },
      { level: "warn", check: "clock of broker-a", found: "its clock is 20 s ahead", advice: "synchronize it", steps: [] },
    ],
  },
};
let isAway = false;
const requests = [];
Object.assign(globalThis, {
  Node, EventSource,
  requestAnimationFrame: () => {},
  document: Object.assign(new Target(), {
    body, documentElement: new Element("html"), visibilityState: "visible",
    getElementById: (id) => places[id],
    createElement: (name) => new Element(name),
    createElementNS: (_, name) => new Element(name),
    createTextNode: (text) => new Text(text),
    querySelectorAll: (selector) => body.querySelectorAll(selector),
    querySelector: (selector) => body.querySelector(selector),
  }),
  window: Object.assign(page, { scrollTo() {} }),
  location: { hash: "" },
  history: { replaceState() {} },
  localStorage: { getItem: () => null, setItem() {} },
  fetch: async (address, options) => {
    if (options?.method) requests.push({ method: options.method, address });
    if (isAway) throw new TypeError("it is away");
    const found = answers[address.split("?")[0]] ?? null;
    return { ok: true, status: 200, json: async () => found };
  },
});

const folder = mkdtempSync(join(tmpdir(), "rmqpy-page-"));
for (const each of readdirSync(assets).filter((name) => name.endsWith(".js"))) {
  writeFileSync(join(folder, each.replace(".js", ".mjs")),
    readFileSync(join(assets, each), "utf8").replace(/"\/console\/([\w-]+)\.js"/g, '"./$1.mjs"'));
}
const load = (name) => import(pathToFileURL(join(folder, `${name}.mjs`)));
const settled = () => new Promise((resolve) => setTimeout(resolve, 20));
const until = async (condition) => {
  for (let left = 1000; left && !condition(); left -= 1) await new Promise((resolve) => setTimeout(resolve, 10));
};
const go = async (hash) => {
  location.hash = hash;
  page.dispatchEvent({ type: "hashchange" });
  await settled();
};
const progress = (topic) => ({ topic, broker: "broker-a", queue_id: 0, offset: 5, end: 9, lag: 4, behind_ms: 0 });

const SCENARIOS = {
  async gone() {
    await load("app");
    await until(() => EventSource.open.length && places.strip.textContent);
    await settled();
    const [source] = EventSource.open;
    const row = { broker: "broker-a", broker_id: 0, is_master: true, address: "a:1", in_per_second: 7, out_per_second: 0, disk_used: 0.1, fault: null, is_full: false };
    source.tell("open");
    source.tell("message", { in_per_second: 7, out_per_second: 0, brokers: [row] });
    const before = places.main.textContent;
    isAway = true;
    source.dispatchEvent({ type: "error" });
    await settled();
    const after = places.main.textContent;
    const during = body.classes?.away;
    const lost = places.strip.textContent;
    isAway = false;
    page.dispatchEvent({ type: "server-lost" });
    await settled();
    return { before, after, during, back: body.classes?.away, lost, strip: places.strip.textContent };
  },
  async strip() {
    await load("app");
    await until(() => places.strip.textContent);
    return {
      text: places.strip.textContent,
      buttons: [...places.strip.all("button"), ...places.strip.all("a")].map((each) => each.textContent),
      links: places.strip.all("a").map((each) => each.attributes.href),
    };
  },
  async dialogs() {
    await load("app");
    await settled();
    const { ask } = await load("dom");
    let outcome = "waits";
    ask("Delete", [], "Delete it", async () => "done").then((found) => { outcome = found; });
    const before = document.querySelectorAll("dialog").length;
    await go("#/nowhere");
    return { before, after: document.querySelectorAll("dialog").length, outcome };
  },
  async reset() {
    answers["/api/v1/groups/billing"] = { progress: [progress("%RETRY%billing"), progress("orders")], members: [], settings: {}, missing: [], disagreements: [], checks: [] };
    const { groups } = await load("groups");
    const shown = new Element("div");
    const view = { parts: ["billing"], query: new URLSearchParams(), signal: new AbortController().signal, allowChanges: true };
    await groups(shown, view);
    const [form] = shown.all("form").slice(-1);
    const proposed = form.all("select")[0].value;
    const buttons = {};
    for (const target of [5, 0]) {
      answers["/api/v1/groups/billing/offsets/preview"] = [{ topic: "orders", broker: "broker-a", queue_id: 0, offset: 5, target }];
      form.dispatchEvent({ type: "submit", preventDefault() {} });
      await settled();
      buttons[target] = shown.all("button").some((each) => each.textContent === "Reset the group");
    }
    return { proposed, buttons };
  },
  async schedules() {
    const row = (given) => ({ name: "nightly", cron: "0 2 * * *", zone: "Europe/Berlin", every: 0, topic: "jobs", broker: "broker-a", next_ms: Date.now() + 630_000,
      last_ms: 0, paused: false, fault: "", catch_up: "latest", tag: null, keys: [], preview: "report", ...given });
    answers["/api/v1/schedules"] = { rows: [row({}), row({ name: "often", cron: "", every: 60, paused: true })], total: 2, page: 1, size: 50, missing: [] };
    const { schedules } = await load("schedules");
    const shown = new Element("div");
    const view = { parts: [], query: new URLSearchParams(), signal: new AbortController().signal, allowChanges: true };
    schedules(shown, view);
    await until(() => shown.all("table").length);
    const labels = shown.all("button").map((each) => each.attributes["aria-label"]).filter(Boolean);
    shown.all("button").find((each) => each.attributes["aria-label"] === "delete often").dispatchEvent({ type: "click" });
    const [dialog] = body.all("dialog");
    const asked = { title: dialog.all("h2")[0].textContent, pattern: dialog.all("input")[0].attributes.pattern };
    const sent = () => requests.map((each) => `${each.method} ${each.address}`);
    const before = sent();
    dialog.all("form")[0].dispatchEvent({ type: "submit", preventDefault() {} });
    await until(() => sent().length > before.length);
    await settled();
    const said = shown.textContent;
    answers["/api/v1/schedules/nightly/pause"] = null;
    shown.all("button").find((each) => each.attributes["aria-label"] === "pause nightly").dispatchEvent({ type: "click" });
    await settled();
    const noted = shown.all("span").filter((each) => each.attributes.class === "done").map((each) => each.textContent).join();
    const readOnly = new Element("div");
    schedules(readOnly, { ...view, allowChanges: false });
    await until(() => readOnly.all("table").length);
    return { text: shown.textContent, labels, asked, before, after: sent().slice(0, 1), said, noted, readOnly: readOnly.all("button").some((each) => each.attributes["aria-label"]) };
  },
  async settings() {
    answers["/api/v1/brokers"] = { rows: [{ broker: "broker-a", broker_id: 0, is_master: true, address: "a:1", fault: null }], total: 1, page: 1, size: 500, missing: [] };
    answers["/api/v1/history/brokers/broker-a"] = { step_ms: 0, times_ms: [], series: {}, marks: [], without: [] };
    answers["/api/v1/brokers/broker-a"] = { runtime: {}, settings: { fileReservedTime: "72", listenPort: "10911" }, fixed: ["listenPort"] };
    const { brokers } = await load("brokers");
    const shown = new Element("div");
    const view = { parts: ["broker-a"], query: new URLSearchParams(), signal: new AbortController().signal, allowChanges: true };
    await brokers(shown, view);
    await settled();
    const text = shown.textContent;
    const labels = shown.all("button").map((each) => each.attributes["aria-label"]).filter(Boolean);
    shown.all("button").find((each) => each.attributes["aria-label"] === "change fileReservedTime").dispatchEvent({ type: "click" });
    answers["/api/v1/brokers/broker-a"] = { runtime: {}, settings: { fileReservedTime: "48", listenPort: "10911" }, fixed: ["listenPort"] };
    body.all("dialog")[0].all("form")[0].dispatchEvent({ type: "submit", preventDefault() {} });
    await settled();
    return { text, labels, after: shown.textContent };
  },
  async notice() {
    await load("app");
    await settled();
    const address = await load("address");
    const shown = () => places.main.textContent.includes("The topic orders was created.");
    address.go("#/schedules", "The topic orders was created.");
    await go("#/schedules");
    const first = shown();
    await go("#/nowhere");
    return { first, next: shown() };
  },
  async jobs() {
    const { jobs } = await load("jobs");
    const text = async (backups, positions) => {
      answers["/api/v1/backups"] = { rows: backups, total: backups.length, page: 1, size: 50, missing: [] };
      answers["/api/v1/positions"] = { rows: positions, total: positions.length, page: 1, size: 50, missing: [] };
      const shown = new Element("div");
      jobs(shown, { parts: [], query: new URLSearchParams(), signal: new AbortController().signal });
      await settled();
      return shown.textContent;
    };
    const now = new Date().toISOString();
    const backup = { broker: "broker-a", folder: "host:/backups/a", address: "a:1", began_at: now, ended_at: now, log_end: 1, behind_bytes: 1024, is_complete: true };
    return {
      none: await text([], []),
      some: await text([backup, { ...backup, ended_at: null, behind_bytes: null, is_complete: false }],
        [{ group: "lake-archive", lag: 3, topics: 1, brokers: ["broker-a"], behind_ms: 10, recent: null }]),
    };
  },
  async prometheus() {
    const { history } = await load("chart");
    const { outside } = await load("dom");
    const view = (prometheus) => ({ prometheus, signal: new AbortController().signal });
    const links = (kind, name, base) => history(kind, name, view(base)).all("a").map((each) => each.attributes);
    let refused = null;
    try {
      outside("javascript:alert(1)", "x");
    } catch (error) {
      refused = error.message;
    }
    const base = "https://prometheus.example/base/";
    return { none: links("topics", "orders", ""), topic: links("topics", 'or"ders', base), group: links("groups", "billing", base), broker: links("brokers", "broker-a", base), refused };
  },
  async controllers() {
    const { controllers } = await load("controllers");
    const view = { parts: [], query: new URLSearchParams(), signal: new AbortController().signal };
    const replica = (given) => ({ broker: "broker-a", broker_id: 1, address: "a:1", is_master: true, in_sync: true, is_alive: true, epoch: 7, in_sync_epoch: 3, lease_seconds: 2.5, ...given });
    const text = async (found) => {
      answers["/api/v1/elections"] = { controllers: [], replicas: [], unknown: [], missing: [], ...found };
      const shown = new Element("div");
      await controllers(shown, view);
      return shown.textContent;
    };
    const leader = { address: "c:1", group: "g", is_leader: true, leader_id: "n0", leader_address: "c:1", fault: null };
    return {
      none: await text({}),
      away: await text({ missing: [{ broker: "broker-b", fault: "did not answer in time" }] }),
      led: await text({ controllers: [leader], replicas: [replica({}), replica({ broker_id: 2, is_master: false, in_sync: false, is_alive: false, lease_seconds: null })] }),
      headless: await text({ controllers: [{ ...leader, is_leader: false, leader_address: null }], replicas: [replica({ is_master: false })], unknown: ["broker-b"] }),
    };
  },
};

console.log(JSON.stringify(await SCENARIOS[scenario]()));
rmSync(folder, { recursive: true });
process.exit(0);
