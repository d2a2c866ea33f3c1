// The status strip of every page: the state of the cluster in sentences, the worst first, with what can be done.

import { change, get, path } from "/console/api.js";
import { to } from "/console/address.js";
import { ask, confirmation, done, fill, h, link } from "/console/dom.js";
import { count, many, span, time } from "/console/format.js";

const EVERY_MS = 10_000;
const NOTICE_MS = 60_000;
const SHOWN = 3;
// The strip is drawn again every few seconds.
let showsFurther = false;

/** Keep the strip current while the page is visible. `session` returns the facts about the visitor. */
export function statusStrip(element, session) {
  let shown = null;
  let since = null;
  let notice = null;
  const promoted = (text) => {
    notice = text;
    setTimeout(() => {
      notice = null;
      draw();
    }, NOTICE_MS);
    return update();
  };
  const update = async () => {
    if (session().needs_login || document.visibilityState === "hidden") return;
    try {
      shown = { status: await get("/status"), at: Date.now() };
    } catch (error) {
      // A lost server has its own line, and the last state stays.
      if (since === null && error.status !== 0) shown = { error, at: Date.now() };
    }
    draw();
  };
  const draw = () => {
    if (session().needs_login) fill(element);
    else fill(element, since === null ? null : lost(since, shown?.at ?? null), notice && h("p", { class: "state ok" }, done(notice)), shown && content(shown, session(), promoted));
  };
  setInterval(() => (since === null ? update() : draw()), EVERY_MS);
  return {
    update,
    /** Show that the server has been gone since a time, or that it is back. */
    away(moment) {
      since = moment;
      if (since === null) update();
      else draw();
    },
  };
}

/** The red line while the server does not answer, with the age of the figures. */
function lost(since, at) {
  const age = h("span", {});
  const tick = () => { age.textContent = at ? ` The figures on this page are ${span(Date.now() - at)} old.` : ""; };
  tick();
  const line = h("p", { class: "state bad", role: "alert" },
    `The server of this console has not answered since ${time(since).slice(11)}.`, age, " Is it still running?");
  const timer = setInterval(() => (line.isConnected ? tick() : clearInterval(timer)), 1000);
  return line;
}

function content({ status, error }, session, promoted) {
  if (error) return h("p", { class: "state bad" }, `The state of the cluster is unknown: ${error.message}`);
  const hidden = status.items.length - SHOWN + status.more;
  const shown = (items) => items.map((item) => problem(item, session, promoted));
  return [
    ...shown(status.items.slice(0, SHOWN)),
    hidden > 0 ? h("details", { class: "further", open: showsFurther, ontoggle: (event) => { showsFurther = event.target.open; } },
      h("summary", {}, many(hidden, "further problem")), shown(status.items.slice(SHOWN)),
      status.more ? h("p", { class: "quiet" }, `${count(status.more)} more; rmqpy doctor lists those of servers`) : null) : null,
    numbers(status),
  ];
}

function problem(item, session, promoted) {
  // "broker-a has no master" needs no "master of broker-a" before it.
  const sentence = item.check.startsWith("master of ") ? item.found : `${item.check}: ${item.found}`;
  return h("div", { class: `state ${item.level}` },
    h("div", {}, h("p", {}, h("strong", {}, item.level === "bad" ? "Problem: " : "Warning: "), sentence),
      item.advice ? h("p", { class: "quiet" }, item.advice) : null),
    h("p", { class: "steps" }, item.steps.map((step) => button(step, session, promoted))));
}

function numbers(status) {
  const parts = [];
  const least = status.is_partial ? "at least " : "";
  if (status.accepting !== null) parts.push(`${many(status.accepting, "broker")} ${status.accepting === 1 ? "takes" : "take"} messages`);
  if (status.lag !== null) parts.push([link(to("groups"), `${least}${count(status.lag)} pending`)]);
  if (status.dead_letters !== null) parts.push([link(to("dead-letters"), `${least}${many(status.dead_letters, "dead letter")}`)]);
  if (!parts.length) return null;
  const level = status.accepting === 0 ? "bad" : status.level === "ok" ? "ok" : "";
  return h("p", { class: `state ${level}` },
    status.level === "ok" ? h("strong", {}, "No problem found. ") : null,
    parts.flatMap((part, at) => (at ? [" · ", part] : [part])));
}

const OPENED = {
  replicas: (step) => [to("replicas", { filter: step.name }), "Open replicas"],
  controllers: () => [to("controllers"), "Open controllers"],
  broker: (step) => [to("brokers", step.name), "Open broker"],
  brokers: () => [to("brokers"), "Open brokers"],
  group: (step) => [to("groups", step.name), "Open group"],
  "dead-letters": (step) => [to("dead-letters", step.name), "Open dead letters"],
};

/** A step as a button: a link to a page, or a change. A read-only console leaves changes to the command in the advice. */
export function button(step, session, promoted) {
  if (step.kind !== "promote") {
    const [address, title] = OPENED[step.kind](step);
    return h("a", { class: "button", href: address }, title);
  }
  if (!session.allow_changes) return null;
  return h("button", { type: "button", class: "main", onclick: () => promote(step, promoted) }, `Promote slave ${step.broker_id}`);
}

async function promote(step, promoted) {
  const made = await ask(`Promote slave ${step.broker_id} of ${step.name} to master`, [
    h("p", {}, `The slave becomes master of ${step.name} within seconds and accepts messages.`),
    h("p", { class: "box warn" }, "Messages that the old master acknowledged and the slave did not copy are lost. If the old master will be back soon, wait for it instead."),
    confirmation(step.name)], "Promote",
  () => change("POST", path`/replicas/${step.name}/promote`, { broker_id: step.broker_id }));
  if (made) await promoted(`Slave ${step.broker_id} of ${step.name} was promoted to master.`);
}
