// Elements: the only way by which the console makes them. Whatever comes from outside becomes a text node.

const SVG = new Set(["svg", "path", "line", "title", "polyline"]);
const LINES = new Set(["pre", "textarea"]);
// Controls, separators of lines and marks that turn the direction of text: shown as what they are.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
const BREAKS = /[\t\n]/g;

const escaped = (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Text whose every character can be seen. */
export function visible(text, keepsLines = false) {
  const shown = String(text).replace(HIDDEN, escaped);
  return keepsLines ? shown : shown.replace(BREAKS, escaped);
}

/** An element with attributes and children; `onclick` and the like are listeners. */
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

/** Put these in the place of what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child instanceof Node));
  return element;
}

/** A name that somebody chose: it keeps its direction to itself. */
export const name = (text) => h("bdi", { class: "name" }, text === "" ? "(empty)" : text);

/** A link to a view of the console. */
export const link = (address, ...children) => h("a", { href: address }, ...children);

/** A box that says what is wrong and what to do. */
export const failure = (error) =>
  h("div", { class: "box bad", role: "alert" }, h("strong", {}, "Failed: "), error.message,
    error.hint ? h("p", {}, error.hint) : null);

/** A state that is bad, in a word or two, and what is known of it. */
export const wrong = (state, why) => [h("span", { class: "badge bad" }, state), " ", why];

/** A box that says whose part of a list is missing, and what to do. */
export const missing = (brokers) => brokers.length ? h("div", { class: "box warn", role: "note" },
  h("strong", {}, "Not everything is here. "), "What these brokers have is missing:",
  h("ul", {}, brokers.map((each) => h("li", {}, name(each.broker), ": ", each.fault))),
  h("p", {}, "Start them, or see what is wrong in the checks of the ", link("#/overview", "overview"), ".")) : null;

/** A labelled control of a form. */
export const field = (label, control) => h("label", {}, h("span", {}, label), control);

/** A dialog with a form; resolves with what `act` returns once it succeeds, with null when it is closed. */
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

/** A control into which the name of a resource has to be typed before it is changed. */
export function confirmation(resource) {
  return field(`Type ${visible(resource)} to confirm`,
    h("input", { required: true, autocomplete: "off", pattern: resource.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&") }));
}
