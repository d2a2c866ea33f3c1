// Tables of given rows, and tables that the server filters, sorts and pages.

import { get, query } from "/console/api.js";
import { failure, field, fill, h, missing } from "/console/dom.js";
import { count } from "/console/format.js";
import { replaceQuery } from "/console/address.js";

const TYPING_MS = 250;

/** A table of rows. A column: {title, cell, of (its field), right (for numbers), still (never wraps), long (wraps anywhere)}. */
export function table(columns, rows, empty, caption, order) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => heading(column, order)))),
      h("tbody", {}, rows.map((row) =>
        h("tr", {}, columns.map((column) => h("td", { class: side(column), "data-title": column.title || null }, h("div", {}, column.cell(row)))))))));
}

const side = (column) => ["right", "still", "long"].find((each) => column[each]) ?? null;

function heading(column, order) {
  if (!order || !column.of) return h("th", { scope: "col", class: column.right ? "right" : null }, column.title);
  const isDown = order.sort === `-${column.of}`;
  const isUp = order.sort === column.of;
  // The first click on a number sorts descending, on a name ascending.
  const next = isDown ? column.of : isUp || column.right ? `-${column.of}` : column.of;
  return h("th", { scope: "col", class: column.right ? "right" : null, "aria-sort": isDown ? "descending" : isUp ? "ascending" : "none" },
    h("button", { type: "button", class: "sort", onclick: () => order.choose(next) },
      column.title, h("span", { "aria-hidden": "true" }, isDown ? " ↓" : isUp ? " ↑" : "")));
}

/** A table of an API path. Filter, order and page are part of the view's address, except those of a second table. */
export function serverTable({ path, columns, view, sort, empty, caption, shown, more, size = 50, isSecond = false }) {
  const state = {
    filter: view.query.get("filter") ?? "",
    sort: view.query.get("sort") ?? sort,
    page: Number(view.query.get("page") ?? 1) || 1,
  };
  const body = h("div", { "aria-live": "polite" }, h("p", { class: "quiet" }, "Loading…"));
  let typing = 0;
  const input = h("input", {
    type: "search", value: state.filter, placeholder: "text", class: "filter",
    oninput: () => {
      clearTimeout(typing);
      typing = setTimeout(() => show({ filter: input.value, page: 1 }), TYPING_MS);
    },
  });

  const nothing = (found) => (state.filter ? `no row contains “${state.filter}”` : found.missing.length ? "Nothing else is known." : empty);
  const tools = h("div", { class: "tools" }, field("Filter", input));

  async function show(changes) {
    Object.assign(state, changes);
    if (!isSecond) replaceQuery({ filter: state.filter, sort: state.sort === sort ? "" : state.sort, page: state.page === 1 ? "" : state.page });
    try {
      const given = { ...state, size, ...more };
      const found = await get(path + query(given), view.signal);
      const last = Math.max(1, Math.ceil(found.total / found.size));
      if (state.page > last) return show({ page: last });
      // An empty list needs no filter.
      tools.hidden = !found.total && !state.filter;
      const order = { sort: state.sort, choose: (chosen) => show({ sort: chosen, page: 1 }) };
      fill(body, missing(found.missing), table(columns, found.rows, nothing(found), caption, order),
        pager(found, last, show));
      shown?.(found.rows);
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      tools.hidden = !state.filter;
      fill(body, failure(error));
    }
    return undefined;
  }

  show({});
  const element = h("section", {}, tools, body);
  element.show = show;
  return element;
}

function pager(found, last, show) {
  const begin = (found.page - 1) * found.size;
  const step = (title, page) =>
    h("button", { type: "button", disabled: page < 1 || page > last, onclick: () => show({ page }) }, title);
  return h("p", { class: "pager" },
    found.total ? `${count(begin + 1)}–${count(begin + found.rows.length)} of ${count(found.total)} ` : null,
    last > 1 ? [step("Previous", found.page - 1), ` page ${count(found.page)} of ${count(last)} `, step("Next", found.page + 1)] : null);
}
