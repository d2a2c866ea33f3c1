"""A page as an SVG: its boxes, lines and texts where the browser has laid them out, written as text.

README shows such a picture of the overview: it is small, it is sharp at any size, and a change of it can be read.
"""

from html import escape
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

#: Of an element: place, ground, border, corners; of a text: place of each of its lines, font and colour.
_LAYOUT: Final = """
() => {
  const found = [];
  const seen = (colour) => colour && !/^rgba\\(.*, 0\\)$/.test(colour) && colour !== "transparent";
  const line = (x, y, x2, y2, stroke) => found.push({ kind: "line", x, y, x2, y2, stroke });
  const box = (element, style) => {
    const { x, y, width, height } = element.getBoundingClientRect();
    const edges = ["Top", "Right", "Bottom", "Left"].map((side) => parseFloat(style[`border${side}Width`]));
    const isWhole = edges.every((edge) => edge > 0);
    if (seen(style.backgroundColor) || isWhole) {
      found.push({ kind: "box", x, y, width, height, fill: seen(style.backgroundColor) ? style.backgroundColor : "none",
        stroke: isWhole ? style.borderTopColor : "none", radius: parseFloat(style.borderTopLeftRadius) || 0 });
    } else if (edges[2] > 0) line(x, y + height, x + width, y + height, style.borderBottomColor);
    else if (edges[1] > 0) line(x + width, y, x + width, y + height, style.borderRightColor);
  };
  const text = (node, style) => {
    const lines = [];
    for (const word of node.data.matchAll(/\\S+\\s*/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].trimEnd().length);
      const { x, y, right, width, height } = range.getBoundingClientRect();
      const last = lines.at(-1);
      const shown = word[0].trimEnd();
      if (last && Math.abs(last.y - y) < 2) {
        Object.assign(last, { text: `${last.text} ${shown}`, width: right - last.x });
      }
      else if (width) lines.push({ x, y, width, height, text: shown });
    }
    for (const line of lines) found.push({ kind: "text", ...line, fill: style.color, size: parseFloat(style.fontSize),
      weight: style.fontWeight, family: /monospace/.test(style.fontFamily) ? "monospace" : "sans-serif",
      underline: style.textDecorationLine.includes("underline") });
  };
  const walk = (element) => {
    const style = getComputedStyle(element);
    if (style.display === "none" || style.clipPath !== "none" || element.matches(".skip")) return;
    if (element.matches("polyline")) {
      const at = element.getScreenCTM();
      const points = [...element.points].map((point) => [at.a * point.x + at.e, at.d * point.y + at.f]);
      if (points.length > 1) found.push({ kind: "polyline", points, stroke: style.stroke });
      return;
    }
    if (!element.closest("svg")) box(element, style);
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) text(child, style);
      else if (child.nodeType === Node.ELEMENT_NODE) walk(child);
    }
  };
  walk(document.body);
  return found;
}
"""


def write(page: Page, path: Path, height: int) -> None:
    """Write what a page shows, down to `height`, to a file."""
    width = page.viewport_size["width"] if page.viewport_size else 1280
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" fill="#fff" stroke="#d0d7de"/>',
        *(_element(each) for each in page.evaluate(_LAYOUT) if each.get("y", 0) < height),
        "</svg>",
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _element(each: dict[str, Any]) -> str:
    def number(name: str) -> str:
        return f"{each[name]:.1f}".removesuffix(".0")

    match each["kind"]:
        case "box":
            return (
                f'<rect x="{number("x")}" y="{number("y")}" width="{number("width")}" height="{number("height")}" '
                f'rx="{min(each["radius"], each["height"] / 2):g}" fill="{each["fill"]}" stroke="{each["stroke"]}"/>'
            )
        case "line":
            return (
                f'<line x1="{number("x")}" y1="{number("y")}" x2="{number("x2")}" y2="{number("y2")}" '
                f'stroke="{each["stroke"]}"/>'
            )
        case "polyline":
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in each["points"])
            return f'<polyline points="{points}" fill="none" stroke="{each["stroke"]}" stroke-width="1.5"/>'
    # The baseline of a line is about a quarter of its font's size above its lower edge.
    baseline = each["y"] + each["height"] / 2 + 0.35 * each["size"]
    line = ' text-decoration="underline"' if each["underline"] else ""
    return (
        f'<text x="{number("x")}" y="{baseline:.1f}" font-family="{each["family"]}" font-size="{each["size"]:g}" '
        f'font-weight="{each["weight"]}" fill="{each["fill"]}" textLength="{number("width")}" '
        f'lengthAdjust="spacingAndGlyphs"{line}>'
        f"{escape(each['text'])}</text>"
    )
