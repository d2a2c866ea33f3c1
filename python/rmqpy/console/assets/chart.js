// Charts: the recent values of a topic, a group or a broker, with hover, range and marks of events.

import { get, path } from "/console/api.js";
import { failure, fill, h, name, outside } from "/console/dom.js";
import { bytes, count, percent, rate, span, time } from "/console/format.js";
import { graphs } from "/console/prometheus.js";

const EVERY_MS = 10_000;
const HEIGHT = 130;
const RANGES = [["15 min", 15 * 60_000], ["1 h", 3_600_000], ["6 h", 6 * 3_600_000], ["24 h", 86_400_000]];
// Kind → title, and the form of its values.
const KINDS = {
  lag: ["Pending messages", count],
  dead_letters: ["Dead letters", count],
  in: ["Messages in per second", rate],
  out: ["Messages out per second", rate],
  p99_ms: ["99th percentile of sends", (value) => `${rate(value)} ms`],
  disk: ["Disk used", percent],
  behind_bytes: ["Replication lag", bytes],
};

/** The section of the page of a topic, a group or a broker. */
export function history(kind, subject, view) {
  const address = path`/history/${kind}/${subject}`;
  const shown = h("div", { class: "charts" }, h("p", { class: "quiet" }, "Loading…"));
  const marks = h("div", {});
  const ranges = h("div", { class: "tools" });
  const longer = view.prometheus ? h("p", {}, outside(graphs(view.prometheus, kind, subject), "Longer times in Prometheus")) : null;
  const element = h("section", {}, h("h2", {}, "History"), ranges, shown, marks, longer);
  let plots = [];
  let range = null;
  let found = null;
  const drop = () => {
    for (const each of plots) each.destroy();
    plots = [];
  };
  const fit = () => {
    for (const plot of plots) plot.setSize({ width: plot.root.parentNode.clientWidth, height: HEIGHT });
  };
  const draw = async () => {
    const { default: UPlot } = await import("/console/uplot.js");
    if (view.signal.aborted) return;
    drop();
    const begin = range === null ? 0 : found.times_ms.findIndex((at) => at >= found.times_ms.at(-1) - range);
    const times = found.times_ms.slice(begin);
    const kept = found.marks.filter((each) => each.at_ms >= times[0]);
    const known = Object.keys(KINDS).filter((kind) => found.series[kind]?.some((value) => value !== null));
    fill(shown, known.map((kind) => {
      const [plot, figure] = chart(UPlot, kind, times, found.series[kind].slice(begin), kept);
      plots.push(plot);
      return figure;
    }));
    fit();
    const unknown = Object.keys(found.series).filter((kind) => !known.includes(kind)).map((kind) => KINDS[kind][0].toLowerCase());
    fill(marks, found.without.length ? h("p", { class: "quiet" }, `Without ${found.without.join(", ")}: no history from there.`) : null,
      unknown.length ? h("p", { class: "quiet" }, `Not known: ${unknown.join(", ")}.`) : null,
      kept.length ? h("ul", { class: "marks" }, kept.map((each) => h("li", {}, time(each.at_ms), " ", name(each.subject), ` ${each.what}`))) : null);
  };
  const load = async () => {
    try {
      found = await get(address, view.signal);
      if (!found.times_ms.length) {
        fill(shown, h("p", { class: "quiet" }, found.without.length
          ? "Its brokers keep no history: they are of another release, or historyMinutes is 0."
          : "The first values come within seconds; with historyMinutes=0 there are none."));
        return;
      }
      choices();
      await draw();
    } catch (error) {
      if (error.name !== "AbortError") fill(shown, failure(error));
    }
  };
  const choices = () => {
    const whole = found.step_ms * found.times_ms.length;
    const button = (title, length) => h("button", { type: "button", "aria-pressed": String(range === length), onclick: () => {
      range = length;
      choices();
      draw();
    } }, title);
    const shorter = RANGES.filter(([, length]) => length < whole);
    fill(ranges, shorter.length ? [...shorter.map(([title, length]) => button(title, length)), button(`All (${span(whole)})`, null)] : null);
  };
  const timer = setInterval(() => { if (document.visibilityState !== "hidden") load(); }, EVERY_MS);
  window.addEventListener("resize", fit, { signal: view.signal });
  view.signal.addEventListener("abort", () => {
    clearInterval(timer);
    drop();
  });
  load();
  return element;
}

/** The time of a tick, in seconds since the epoch, in the form of all other times. */
function clock(tick) {
  const moment = time(tick * 1000).slice(11);
  return moment.endsWith(":00") ? moment.slice(0, 5) : moment;
}

function chart(UPlot, kind, times, values, marks) {
  const [title, form] = KINDS[kind];
  const last = values.findLast((value) => value !== null) ?? null;
  const most = Math.max(...values.filter((value) => value !== null));
  const value = h("strong", {}, form(last));
  const figure = h("figure", { class: "chart", role: "img", "aria-label": `${title}: last ${form(last)}, at most ${form(most)}` },
    h("figcaption", {}, `${title} `, value, h("span", { class: "quiet" }, ` at most ${form(most)}`)));
  const colours = getComputedStyle(document.getElementById("ink"));
  const [text, edge, stroke] = [colours.color, colours.borderTopColor, colours.backgroundColor];
  const axis = { stroke: text, grid: { stroke: edge, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const plot = new UPlot({
    width: 320, height: HEIGHT, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { sync: { key: "history" }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.1] } },
    axes: [{ ...axis, size: 28, space: 80, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => form(tick)) }],
    series: [{}, { stroke, width: 1.5, spanGaps: false, points: { show: values.filter((each) => each !== null).length < 3, size: 5 } }],
    hooks: {
      setCursor: [(self) => {
        const at = self.cursor.idx;
        value.textContent = at === null || at === undefined ? form(last) : `${time(times[at])}: ${values[at] === null ? "not known" : form(values[at])}`;
      }],
      draw: [(self) => {
        const { ctx, bbox } = self;
        ctx.save();
        ctx.strokeStyle = text;
        ctx.setLineDash([4, 4]);
        for (const each of marks) {
          const x = self.valToPos(each.at_ms / 1000, "x", true);
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.restore();
      }],
    },
  }, [times.map((at) => at / 1000), values], figure);
  return [plot, figure];
}
