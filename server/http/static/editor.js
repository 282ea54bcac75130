// The page with the SQL editor: runs statements, and follows queries.

import { bars, line } from "./chart.js";
import { h, table } from "./dom.js";

const ROWS_MAX = 1000; // shown
const POINTS_MAX = 300; // of the chart over time
const KEYWORDS = ("SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN LEFT ON AS AND OR NOT NULL INSERT INTO VALUES UPDATE SET DELETE "
  + "CREATE TABLE VIEW MATERIALIZED INDEX HOLD DROP SUBSCRIBE EXPLAIN SHOW WITH DISTINCT HAVING UNION count sum min max avg").split(" ");
const SUBSCRIBE = /^\s*SUBSCRIBE\s+(?:TO\s+)?([^]*?);?\s*$/i;

export function editorPage(tidewire, names) {
  const saved = sessionStorage.getItem("tidewire.sql") ?? "SELECT * FROM mz_internal.mz_frontiers";
  const input = h("textarea", {
    id: "sql", "aria-label": "SQL", spellcheck: "false", "aria-controls": "names", input: complete, keydown: key, click: complete,
  }, saved);
  const list = h("ul", { id: "names", role: "listbox", "aria-label": "Completions" });
  const run = h("button", { id: "run", type: "button", class: "primary", click: execute }, "Run");
  const follow = h("button", { id: "follow", type: "button", click: () => subscribe(input.value.trim().replace(/;$/, "")) }, "Follow");
  const stop = h("button", { id: "stop", type: "button", disabled: "", click: () => running?.abort() }, "Stop");
  const state = h("span", { id: "state", class: "soft grow", role: "status" });
  const output = h("div", { id: "output" });
  let running = null;
  let choices = [];
  let chosen = 0;

  // -- completion ----------------------------------------------------------------------------------------------------

  function word() {
    const before = input.value.slice(0, input.selectionStart);
    return /[\w$.]*$/.exec(before)[0];
  }

  function complete() {
    sessionStorage.setItem("tidewire.sql", input.value);
    const typed = word().toLowerCase();
    const known = typed.length < 1 ? [] : [...names(), ...KEYWORDS].filter((name) => {
      const lower = name.toLowerCase();
      return lower !== typed && (lower.startsWith(typed) || lower.includes(`.${typed}`));
    });
    choices = [...new Set(known)].slice(0, 12);
    chosen = 0;
    show();
  }

  function show() {
    list.replaceChildren(...choices.map((name, at) => h("li", {
      role: "option", "aria-selected": String(at === chosen), mousedown: (event) => { event.preventDefault(); accept(name); },
    }, name)));
  }

  function accept(name) {
    const end = input.selectionStart;
    input.setRangeText(name, end - word().length, end, "end");
    choices = [];
    show();
    sessionStorage.setItem("tidewire.sql", input.value);
  }

  function key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      (event.shiftKey ? follow : run).click();
    } else if (event.key === "Escape") {
      if (choices.length) { choices = []; show(); } else running?.abort();
    } else if (choices.length && event.key === "Tab" && !event.shiftKey) {
      event.preventDefault();
      accept(choices[chosen]);
    } else if (choices.length && event.altKey && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      event.preventDefault();
      chosen = (chosen + (event.key === "ArrowRight" ? 1 : choices.length - 1)) % choices.length;
      show();
    }
  }

  // -- execution -----------------------------------------------------------------------------------------------------

  async function guarded(work) {
    running?.abort();
    const own = running = new AbortController();
    stop.disabled = false;
    output.replaceChildren();
    try {
      await work(own.signal);
    } catch (error) {
      if (own.signal.aborted) {
        if (running === own) state.textContent = `${state.textContent} (stopped)`;
      } else {
        state.textContent = "";
        output.append(described(error));
      }
    } finally {
      if (running === own) { running = null; stop.disabled = true; }
    }
  }

  function execute() {
    const subscription = SUBSCRIBE.exec(input.value);
    if (subscription) return subscribe(subscription[1].replace(/^\(([^]*)\)$/, "$1"));
    return guarded(async (signal) => {
      state.textContent = "running";
      const begun = performance.now();
      const results = await tidewire.execute([{ query: input.value }], { signal }).catch((error) => {
        if (error.sqlstate !== "42601") throw error;
        return tidewire.query(input.value, undefined, { signal }).then((last) => [last]); // several statements
      });
      const last = results[results.length - 1];
      state.textContent = `${last.tag}, ${Math.round(performance.now() - begun)} ms`;
      for (const notice of last.notices) output.append(h("p", { class: "soft" }, `${notice.severity}: ${notice.message}`));
      if (last.rows) output.append(view(last.columns, last.rows.slice(0, ROWS_MAX), last.rows.length));
    });
  }

  function subscribe(query) {
    return guarded(async (signal) => {
      const rows = new Map(); // JSON to {row, count, time}
      const points = [];
      let [columns, updates, last, size] = [[], 0, 0, 0];
      let drawing = null;
      let isDrawn = false; // the table has all changes
      const draw = () => {
        drawing = null;
        if (signal.aborted) return;
        const charts = output.querySelector("#charts");
        if (isDrawn && charts) { // a new table would begin its animation again
          charts.lastElementChild.replaceWith(line("rows", points) ?? "");
          return;
        }
        isDrawn = points.length > 1;
        const shown = [...rows.values()].slice(0, ROWS_MAX);
        output.replaceChildren(view(columns, shown.map(({ row }) => row), size, points, new Set(shown.filter(({ time }) => time === last).map(({ row }) => row))));
      };
      state.textContent = "waiting for the snapshot";
      for await (const batch of tidewire.subscribe(query, { signal })) {
        columns = batch.columns;
        if (batch.changes.length) isDrawn = false;
        for (const { diff, row } of batch.changes) {
          const json = JSON.stringify(row);
          const number = (rows.get(json)?.count ?? 0) + diff;
          if (number) rows.set(json, { row, count: number, time: batch.time }); else rows.delete(json);
          size += diff;
        }
        if (batch.kind === "update") { updates += 1; last = batch.time; }
        points.push([batch.progress, size]);
        if (points.length > POINTS_MAX) points.shift();
        const late = Math.max(0, Date.now() - batch.progress);
        state.textContent = `following: ${updates} updates, ${late} ms behind`;
        state.title = `resume with ${batch.token}`;
        drawing ??= requestAnimationFrame(draw);
      }
      state.textContent = `ended after ${updates} updates`;
    });
  }

  function view(columns, rows, total, points = [], changed = new Set()) {
    const cells = columns.map(({ name, type }, at) => ({
      name, number: /^(smallint|integer|bigint|numeric|real|double)/.test(type), of: (row) => row[at],
    }));
    const charts = [bars(columns, rows), line("rows", points)].filter(Boolean);
    return h("div", { class: charts.length ? "columns" : "" },
      h("section", { class: "card" },
        h("p", { class: "soft" }, total > rows.length ? `${rows.length} of ${total} rows` : `${total} rows`),
        table(cells, rows, { empty: "no rows", isChanged: (row) => changed.has(row) })),
      charts.length ? h("section", { class: "card", id: "charts" }, charts) : null);
  }

  complete();
  choices = [];
  show();
  const page = h("div", {},
    h("section", { class: "card" }, input, list,
      h("div", { class: "bar" }, run, follow, stop, state,
        h("span", { class: "soft" }, h("kbd", {}, "Ctrl Enter"), " run  ", h("kbd", {}, "Ctrl Shift Enter"), " follow  ",
          h("kbd", {}, "Tab"), " complete  ", h("kbd", {}, "Esc"), " stop"))),
    output);
  return { element: page, focus: () => input.focus(), leave: () => running?.abort() };
}

export function described(error) {
  const lines = [`ERROR: ${error.message}`];
  if (error.detail) lines.push(`DETAIL: ${error.detail}`);
  if (error.hint) lines.push(`HINT: ${error.hint}`);
  if (error.sqlstate) lines.push(`SQLSTATE ${error.sqlstate}${error.position ? `, at character ${error.position}` : ""}`);
  return h("p", { class: "error", role: "alert" }, lines.join("\n"));
}
