// Access: users and rules with their changes, and checks of permissions.

import { change, get, path, query } from "/console/api.js";
import { ask, confirmation, done, failure, field, fill, h, name } from "/console/dom.js";
import { serverTable, table } from "/console/table.js";

const ACTIONS = ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All"];

export function access(shown, view) {
  const users = serverTable({ path: "/users", columns: userColumns(view), view, sort: "name", empty: "No users: the broker has no access control, or no user was created yet.", caption: "Users at each broker" });
  const rules = serverTable({ path: "/rules", columns: ruleColumns(view), view: { ...view, query: new URLSearchParams() }, isSecond: true, sort: "user", empty: "No rules: super users need none, other users have no permissions.", caption: "Rules at each broker" });
  const userNotice = h("span", {});
  const ruleNotice = h("span", {});
  // User and broker → what was changed last.
  view.notes = new Map();
  // A change at one broker is made at all of them. `place` is next to a button that is still there afterwards.
  view.changed = (place, text, key) => {
    view.notes.clear();
    if (key) view.notes.set(key, text);
    for (const each of [userNotice, ruleNotice]) fill(each, each === place ? done(text) : null);
    users.show({});
    rules.show({});
  };
  view.places = { users: userNotice, rules: ruleNotice };
  const make = (title, act, place, text) => h("button", { type: "button", class: "main", onclick: () => act().then((made) => made && view.changed(place, text)) }, title);
  fill(shown,
    h("p", { class: "facts" }, "Brokers with authenticationEnabled and authorizationEnabled authenticate each request and check these permissions."),
    h("section", {}, h("h2", {}, "Users"), view.allowChanges ? h("div", { class: "tools" }, make("Create user", createUser, userNotice, "The user was created."), userNotice) : null, users),
    h("section", {}, h("h2", {}, "Rules"), view.allowChanges ? h("div", { class: "tools" }, make("Set a rule", setRule, ruleNotice, "The rule was set."), ruleNotice) : null, rules),
    check(view));
}

const userColumns = (view) => [
  { title: "User", of: "name", cell: (row) => name(row.name) },
  { title: "Broker", of: "broker", cell: (row) => row.broker },
  { title: "Kind", of: "is_super", cell: (row) => (row.is_super ? "super user: has all permissions" : "has the permissions in its rules") },
  { title: "State", of: "is_enabled", cell: (row) => (row.is_enabled ? h("span", { class: "badge ok" }, "enabled") : h("span", { class: "badge warn" }, "disabled")) },
  ...(view.allowChanges ? [{ title: "", cell: (row) => [
    act(view, row.is_enabled ? "Disable" : "Enable", `${row.is_enabled ? "Disable" : "Enable"} ${row.name}`, row.name,
      () => change("POST", path`/users/${row.name}`, { is_enabled: !row.is_enabled }),
      () => view.changed(null, row.is_enabled ? "disabled" : "enabled", `${row.name}\n${row.broker}`)), " ",
    act(view, "Remove", `Remove ${row.name} and its rules`, row.name, () => change("DELETE", path`/users/${row.name}`, {}),
      () => view.changed(view.places.users, `The user ${row.name} was removed.`)),
    view.notes.has(`${row.name}\n${row.broker}`) ? [" ", done(view.notes.get(`${row.name}\n${row.broker}`))] : null,
  ] }] : []),
];

const ruleColumns = (view) => [
  { title: "User", of: "user", cell: (row) => name(row.user) },
  { title: "Broker", of: "broker", cell: (row) => row.broker },
  { title: "Resource", of: "resource", cell: (row) => h("code", {}, row.resource) },
  { title: "Actions", cell: (row) => row.actions.join(", ") },
  { title: "From", cell: (row) => row.sources.join(", ") || "anywhere" },
  { title: "Decision", of: "decision", cell: (row) => h("span", { class: `badge ${row.decision === "Allow" ? "ok" : "bad"}` }, row.decision) },
  ...(view.allowChanges ? [{ title: "", cell: (row) =>
    act(view, "Remove", `Remove the rule of ${row.user} on ${row.resource}`, row.user,
      () => change("DELETE", "/rules", { user: row.user, resource: row.resource }),
      () => view.changed(view.places.rules, `The rule of ${row.user} on ${row.resource} was removed.`)) }] : []),
];

function act(view, title, sentence, resource, work, changed) {
  return h("button", { type: "button", onclick: async () => {
    if (await ask(sentence, confirmation(resource), title, async () => (await work()) ?? true)) changed();
  } }, title);
}

function createUser() {
  const user = h("input", { required: true, autocomplete: "off" });
  const secret = h("input", { type: "password", required: true, autocomplete: "new-password" });
  const kind = h("select", {}, h("option", { value: "" }, "has the permissions in its rules"), h("option", { value: "super" }, "super user: has all permissions"));
  return ask("Create a user at every broker", [field("Name", user), field("Secret", secret), field("Kind", kind)], "Create",
    async () => (await change("POST", "/users", { user: user.value, secret: secret.value, is_super: kind.value === "super" })) ?? true);
}

function setRule() {
  const user = h("input", { required: true, autocomplete: "off" });
  const resource = h("input", { required: true, autocomplete: "off", placeholder: "Topic:orders, Topic:shop-*, Group:billing, Cluster:*" });
  const actions = ACTIONS.map((each) => h("input", { type: "checkbox", value: each }));
  const decision = h("select", {}, h("option", {}, "Allow"), h("option", {}, "Deny"));
  const sources = h("input", { placeholder: "10.0.0.0/8, 192.168.1.7; empty: anywhere" });
  return ask("Set a rule at every broker", [field("User", user), field("Resource", resource),
    h("fieldset", {}, h("legend", {}, "Actions"), actions.map((box) => field(box.value, box))),
    field("Decision", decision), field("From addresses", sources)], "Set",
  async () => (await change("POST", "/rules", {
    user: user.value, resource: resource.value, decision: decision.value,
    actions: actions.filter((box) => box.checked).map((box) => box.value),
    sources: sources.value.split(/[\s,]+/).filter(Boolean),
  })) ?? true);
}

const ANSWERS = [
  { title: "Broker", cell: (row) => row.broker },
  { title: "Answer", cell: (row) => h("span", { class: `badge ${row.is_allowed ? "ok" : "bad"}` }, row.is_allowed ? "allowed" : "refused") },
  { title: "By", cell: (row) => row.rule },
];

/** The check of a permission: the decision of each broker, and the rule behind it. */
function check(view) {
  const user = h("input", { required: true, autocomplete: "off" });
  const action = h("select", {}, ACTIONS.slice(0, -1).map((each) => h("option", {}, each)));
  const resource = h("input", { required: true, autocomplete: "off", placeholder: "Topic:orders" });
  const source = h("input", { value: "127.0.0.1", required: true });
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "tools", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const asked = { user: user.value, action: action.value, resource: resource.value, source: source.value };
      fill(result, table(ANSWERS, await get("/access/check" + query(asked), view.signal), "No broker answers.", "Decisions of the brokers"));
    } catch (error) {
      fill(result, failure(error));
    }
  } }, field("User", user), field("Action", action), field("Resource", resource), field("From", source), h("button", { type: "submit" }, "Check permission"));
  return h("section", {}, h("h2", {}, "Check permission"), form, result);
}
