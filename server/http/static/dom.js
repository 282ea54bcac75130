// Elements, tables and formats. Text is only ever set as text: names and values may contain anything.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element. A property that is a function is an event listener; false and null are omitted. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== false).map(text));
  return element;
}

function text(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** `columns`: [{name, number, of(row) -> value or element}]. `isChanged(row)` marks a row. */
export function table(columns, rows, { empty = "none", isChanged = () => false } = {}) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map(({ name, number }) => h("th", { class: number && "number", scope: "col" }, name));
  const body = rows.map((row) => h("tr", { class: isChanged(row) && "changed" }, columns.map((one) => cell(one, one.of(row)))));
  return h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

function cell({ number }, value) {
  if (value === null || value === undefined) return h("td", { class: number ? "null number" : "null" }, number ? "" : "–");
  if (value instanceof Node) return h("td", {}, value);
  const shown = typeof value === "object" ? JSON.stringify(value) : String(value);
  return h("td", { class: number ? "number" : shown.length > 40 && "wide" }, shown.length > 2000 ? `${shown.slice(0, 2000)}…` : shown);
}

export function badge(value, kinds = {}) {
  return h("span", { class: `badge ${kinds[value] ?? ""}` }, value ?? "–");
}

export function tile(label, value) {
  return h("div", { class: "tile" }, h("span", { class: "soft" }, label), h("b", {}, value));
}

export function count(value) {
  return value === null ? null : Number(value).toLocaleString("en-US");
}

export function bytes(value) {
  if (value === null || value === undefined) return null;
  let size = Number(value);
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (size < 1024) return `${size < 10 && unit !== "B" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TB`;
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return null;
  const ms = Number(milliseconds);
  if (ms < 0.05) return "0 ms";
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
}

export function clock(milliseconds) {
  return milliseconds === null ? null : new Date(Number(milliseconds)).toISOString().slice(11, 23);
}
