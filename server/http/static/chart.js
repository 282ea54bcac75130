// Charts of a result: bars of its first numeric column, and a line of a value over time.

import { svg } from "./dom.js";

const NUMERIC = /^(smallint|integer|bigint|numeric|real|double precision)/;
const BARS_MAX = 24;

/** The position of the first numeric column that is not the first column, else of the first one; -1 if there is none. */
function measure(columns) {
  const numeric = columns.map(({ type }) => NUMERIC.test(type));
  const later = numeric.indexOf(true, 1);
  return later >= 0 ? later : numeric.indexOf(true);
}

/** Bars of `rows`, or null if no column is numeric. */
export function bars(columns, rows) {
  const value = measure(columns);
  if (value < 0 || !rows.length) return null;
  const label = value === 0 && columns.length > 1 ? 1 : 0;
  const shown = rows.slice(0, BARS_MAX).map((row) => [label === value ? "" : String(row[label] ?? "null"), Number(row[value])]);
  const finite = shown.filter(([, number]) => Number.isFinite(number));
  const high = Math.max(0, ...finite.map(([, number]) => number));
  const low = Math.min(0, ...finite.map(([, number]) => number));
  const [width, left, right, step] = [520, 130, 60, 22];
  const x = (number) => left + ((number - low) / (high - low || 1)) * (width - left - right);
  const height = finite.length * step + 24;
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${columns[value].name} by row` },
    svg("text", { class: "soft", x: left, y: 12 }, columns[value].name),
    svg("line", { class: "axis", x1: x(0), x2: x(0), y1: 18, y2: height }),
    finite.map(([name, number], at) => [
      svg("text", { x: left - 8, y: 34 + at * step, "text-anchor": "end" }, name.length > 18 ? `${name.slice(0, 17)}…` : name),
      svg("rect", {
        class: "mark", rx: 2, y: 22 + at * step, height: 16, x: Math.min(x(0), x(number)), width: Math.max(1, Math.abs(x(number) - x(0))),
      }),
      svg("text", { class: "soft", x: x(Math.max(number, 0)) + 6, y: 34 + at * step }, number.toLocaleString("en-US")),
    ]));
}

/** A line through `points`, [[milliseconds, value], ...]. */
export function line(name, points) {
  if (points.length < 2) return null;
  const [width, height, left, bottom] = [520, 130, 60, 20];
  const values = points.map(([, value]) => value);
  const [high, low] = [Math.max(0, ...values), Math.min(0, ...values)];
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const x = (time) => left + ((time - first) / (last - first || 1)) * (width - left - 10);
  const y = (value) => 20 + (1 - (value - low) / (high - low || 1)) * (height - bottom - 30);
  const path = points.map(([time, value], at) => `${at ? `H${x(time).toFixed(1)}V` : `M${x(time).toFixed(1)},`}${y(value).toFixed(1)}`);
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name },
    svg("text", { class: "soft", x: left, y: 12 }, name),
    svg("line", { class: "axis", x1: left, x2: width - 10, y1: height - bottom, y2: height - bottom }),
    svg("text", { class: "soft", x: left - 8, y: y(high) + 4, "text-anchor": "end" }, high.toLocaleString("en-US")),
    low !== high && svg("text", { class: "soft", x: left - 8, y: y(low) + 4, "text-anchor": "end" }, low.toLocaleString("en-US")),
    svg("text", { class: "soft", x: left, y: height - 5 }, new Date(first).toLocaleTimeString()),
    svg("text", { class: "soft", x: width - 10, y: height - 5, "text-anchor": "end" }, new Date(last).toLocaleTimeString()),
    svg("path", { class: "line", d: path.join("") }));
}
