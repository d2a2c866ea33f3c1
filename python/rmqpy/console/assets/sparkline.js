// Sparklines: recent values as a small line in a row. Unknown values are gaps.

import { h } from "/console/dom.js";
import { count } from "/console/format.js";

const HEIGHT = 16;

/** The line of a row, or a dash if no value is known. `title` names the values. */
export function sparkline(values, title, form = count) {
  const known = (values ?? []).filter((value) => value !== null);
  if (!known.length) return h("span", { class: "quiet", title: "not known: the broker keeps no history" }, "–");
  const top = Math.max(...known);
  const label = `${title}: at most ${form(top)}, last ${form(known.at(-1))}`;
  const y = (value) => HEIGHT - 1 - ((HEIGHT - 2) * value) / (top || 1);
  const runs = [[]];
  values.forEach((value, at) => {
    if (value === null) runs.push([]);
    else runs.at(-1).push(`${at},${y(value).toFixed(1)}`);
  });
  return h("svg", { class: "spark", viewBox: `0 0 ${Math.max(1, values.length - 1)} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("title", {}, label), runs.filter((run) => run.length).map((run) => h("polyline", { fill: "none", points: run.join(" ") })));
}
