// Numbers, sizes and times in readable form.

const NUMBER = new Intl.NumberFormat("en");
const RATE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));
/** "1 member", "2 members". */
export const many = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
export const rate = (value) => (value === null || value === undefined ? "–" : RATE.format(value));
export const percent = (value) => (value === null || value === undefined ? "–" : `${RATE.format(100 * value)} %`);

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; value >= 1024 && at < units.length - 1; at += 1) value /= 1024;
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

/** Format a time span in ms. */
export function span(ms) {
  if (!ms) return "–";
  if (ms < 1000) return `${ms} ms`;
  const seconds = Math.round(ms / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

/** Format the time until a moment: "in 5 min". */
export const until = (ms) => (ms > 0 ? `in ${span(ms)}` : "now");

/** Format a time, given as ISO 8601 or in ms since the epoch, in the local zone. */
export function time(moment) {
  if (!moment) return "–";
  const date = new Date(moment);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Format bytes as a hex dump: offset, sixteen bytes, their text. */
export function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const codes = row.map((code) => code.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((code) => (code >= 32 && code < 127 ? String.fromCharCode(code) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${codes}  ${text}`);
  }
  return lines.join("\n");
}
