// The graph of a dataflow's operators. Each is below its inputs.

import { bytes, count, duration, svg } from "./dom.js";

const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [210, 74, 26, 40];

/** `operators`: the rows of mz_dataflow_operators of one dataflow. `memory`: bytes by operator. */
export function graph(operators, memory) {
  const byId = new Map(operators.map((operator) => [operator.id, operator]));
  const levels = new Map();
  const level = (id) => {
    if (!levels.has(id)) {
      levels.set(id, 0); // ends the search if the inputs had a cycle
      const inputs = byId.get(id).input_ids.filter((input) => byId.has(input));
      levels.set(id, inputs.length ? 1 + Math.max(...inputs.map(level)) : 0);
    }
    return levels.get(id);
  };
  const rows = [];
  for (const { id } of operators) (rows[level(id)] ??= []).push(id);
  const widest = Math.max(...rows.map((row) => row.length));
  const width = widest * (WIDTH + GAP_X) + GAP_X;
  const place = new Map();
  rows.forEach((row, y) => row.forEach((id, x) => {
    const start = (width - row.length * (WIDTH + GAP_X) + GAP_X) / 2;
    place.set(id, [start + x * (WIDTH + GAP_X), 8 + y * (HEIGHT + GAP_Y)]);
  }));
  const height = rows.length * (HEIGHT + GAP_Y) - GAP_Y + 16;
  const longest = Math.max(1e-9, ...operators.map((operator) => operator.steps_ms));
  const edges = operators.flatMap((operator) => operator.input_ids.filter((id) => place.has(id)).map((input) => {
    const [[fromX, fromY], [toX, toY]] = [place.get(input), place.get(operator.id)];
    const [x1, y1, x2, y2] = [fromX + WIDTH / 2, fromY + HEIGHT, toX + WIDTH / 2, toY];
    return svg("path", { class: "edge", d: `M${x1},${y1}C${x1},${y1 + GAP_Y / 2} ${x2},${y2 - GAP_Y / 2} ${x2},${y2}` });
  }));
  const nodes = operators.map((operator) => {
    const [x, y] = place.get(operator.id);
    const held = memory.get(operator.id);
    const share = operator.steps_ms / longest;
    return svg("g", { class: "operator" },
      svg("title", {}, operator.name),
      svg("rect", { class: "node", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
      svg("text", { x: x + 10, y: y + 20 }, clipped(operator.name.replaceAll("materialize.public.", ""), 30)),
      svg("text", { class: "soft", x: x + 10, y: y + 38 }, `${count(operator.rows_in)} rows in, ${count(operator.rows_out)} out`),
      svg("text", { class: "soft", x: x + 10, y: y + 54 },
        `${duration(operator.steps_ms)} in ${count(operator.steps)} steps${held === undefined ? "" : `, ${bytes(held)}`}`),
      svg("rect", { class: "track", x: x + 10, y: y + 62, width: WIDTH - 20, height: 4, rx: 2 }),
      svg("rect", { class: "heat", x: x + 10, y: y + 62, width: (WIDTH - 20) * share, height: 4, rx: 2 }));
  });
  return svg("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "operators" }, edges, nodes);
}

function clipped(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
