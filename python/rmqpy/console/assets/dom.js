// Elements: the only place where the console creates them. Data from outside becomes text nodes.

const SVG = new Set(["svg", "path", "line", "title", "polyline"]);
const LINES = new Set(["pre", "textarea"]);
// Control characters, line separators and marks of text direction are shown as escapes.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const BREAKS = /[\t\n]/g;

const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** A text with all its characters visible. */
export function visible(text, keepsLines = false) {
  const shown = String(text).replace(HIDDEN, escaped);
  return keepsLines ? shown : shown.replace(BREAKS, escaped);
}

/** Create an element with attributes and children; `onclick` and similar ones are listeners. */
export function h(name, attributes, ...children) {
  const element = SVG.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else if (key === "href" && !/^[#/]/.test(value)) throw new Error(`a link that leads elsewhere: ${value}`);
    else element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child, LINES.has(name))));
  }
  return element;
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child instanceof Node));
  return element;
}

/** A name chosen by users, isolated from the text direction around it. */
export const name = (text) => h("bdi", { class: "name" }, text === "" ? "(empty)" : text);

/** A link to a view of the console. */
export const link = (address, ...children) => h("a", { href: address }, ...children);

/** A link to another site: only to an address of the server's configuration. */
export function outside(address, ...children) {
  if (!/^https?:/.test(address)) throw new Error(`not the address of a site: ${address}`);
  const element = h("a", { rel: "noopener noreferrer", target: "_blank" }, ...children);
  element.setAttribute("href", address);
  return element;
}

/** A box with an error and its hint. */
export const failure = (error) =>
  h("div", { class: "box bad", role: "alert" }, h("strong", {}, "Failed: "), error.message,
    error.hint ? h("p", {}, error.hint) : null);

/** A change that worked, in words, for the place next to its button. */
export const done = (text) => h("span", { class: "done", role: "status" }, `✓ ${text}`);

/** A bad state and its reason. */
export const wrong = (state, why) => [h("span", { class: "badge bad" }, state), " ", why];

/** A box that names brokers whose data is missing, with advice. */
export const missing = (brokers) => brokers.length ? h("div", { class: "box warn", role: "note" },
  h("strong", {}, "The data of these brokers is missing:"),
  h("ul", {}, brokers.map((each) => h("li", {}, name(each.broker), ": ", each.fault))),
  h("p", {}, "Start them, or see the checks in the ", link("#/overview", "overview"), ".")) : null;

/** A labelled control of a form. */
export const field = (label, control) => h("label", {}, h("span", {}, label), control);

/** A dialog with a form; resolves with the result of `act` when it succeeds, with null when closed. */
export function ask(title, content, action, act) {
  return new Promise((resolve) => {
    const trouble = h("div", {});
    const button = h("button", { class: "main", type: "submit" }, action);
    const submit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      fill(trouble);
      try {
        resolve(await act());
        dialog.close();
      } catch (error) {
        fill(trouble, failure(error));
        button.disabled = false;
      }
    };
    const form = h("form", { onsubmit: submit }, h("h2", { id: "dialog-title" }, title), content, trouble,
      h("p", { class: "actions" }, button, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A control that requires typing the name of a resource before a change. */
export function confirmation(resource) {
  return field(`Type ${visible(resource)} to confirm`,
    h("input", { required: true, autocomplete: "off", title: `Type ${resource} exactly.`, pattern: resource.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&") }));
}
