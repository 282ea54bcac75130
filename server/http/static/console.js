// The console: its pages, which are read from the system tables every two seconds.

import { TidewireError, Tidewire } from "./client.js";
import { badge, bytes, clock, count, duration, h, table, tile } from "./dom.js";
import { described, editorPage } from "./editor.js";
import { graph } from "./graph.js";
import { Tables } from "./tables.js";

const REFRESH_MS = 2000;
const tidewire = new Tidewire(location.origin, { settings: { application_name: "console", statement_timeout: "20s" } });
const main = document.getElementById("page");
const status = document.getElementById("status");

const tables = new Tables(tidewire);
const read = (...names) => tables.read(...names);

/** A note about the tables that the role may not read, or null. */
function missing({ hidden }) {
  return hidden.length ? h("p", { class: "note" }, `Not shown, because your role may not read them: ${hidden.join(", ")}`) : null;
}

function namesOf({ schemas, objects }) {
  const schemaNames = new Map(schemas.map(({ id, name }) => [id, name]));
  const full = new Map(objects.map(({ id, schema_id: schema, name }) => [id, `${schemaNames.get(schema) ?? "?"}.${name}`]));
  return (id) => full.get(id) ?? id ?? "–";
}

const by = (rows, key) => new Map(rows.map((row) => [row[key], row]));
const latest = (frontiers) => Math.max(0, ...frontiers.map((row) => Number(row.write_frontier ?? 0)));

// -- pages -------------------------------------------------------------------------------------------------------------

const KINDS = { "materialized-view": "good", table: "", source: "warn" };

async function objectsPage() {
  const found = await read("schemas", "objects", "frontiers", "dataflows", "lags", "arrangements", "sizes");
  const name = namesOf(found);
  const now = latest(found.frontiers);
  const frontiers = by(found.frontiers, "object_id");
  const flows = by(found.dataflows.filter(({ object_id: id }) => id !== null), "object_id");
  const lags = by(found.lags, "dataflow_id");
  const sizes = new Map(found.sizes.map(({ nspname, relname, bytes: size }) => [`${nspname}.${relname}`, Number(size)]));
  const state = (id) => found.arrangements.filter((row) => row.dataflow_id === (flows.get(id)?.id ?? id))
    .reduce((sum, row) => sum + Number(row.memory_bytes), 0);
  const rows = found.objects.filter(({ id, type }) => id.startsWith("u") && type !== "hold").sort((a, b) => (name(a.id) < name(b.id) ? -1 : 1));
  const behind = ({ id }) => (frontiers.has(id) ? now - Number(frontiers.get(id).write_frontier) : null);
  return [
    missing(found),
    h("div", { class: "tiles" }, tile("Objects", count(rows.length)),
      tile("On disk", bytes([...sizes.values()].reduce((sum, size) => sum + size, 0))),
      tile("State of dataflows", found.hidden.includes("mz_internal.mz_arrangements") ? "–" : bytes(found.arrangements.reduce((sum, row) => sum + Number(row.memory_bytes), 0))),
      tile("Furthest behind", duration(Math.max(0, ...rows.map(behind))))),
    h("section", { class: "card" }, h("h2", {}, "Objects"), table([
      { name: "Name", of: ({ id }) => name(id) },
      { name: "Kind", of: ({ type }) => badge(type, KINDS) },
      { name: "Read frontier", number: true, of: ({ id }) => clock(frontiers.get(id)?.read_frontier ?? null) },
      { name: "Write frontier", number: true, of: ({ id }) => clock(frontiers.get(id)?.write_frontier ?? null) },
      { name: "History", number: true, of: ({ id }) => {
        const row = frontiers.get(id);
        return row?.read_frontier ? duration(row.write_frontier - row.read_frontier) : null;
      } },
      { name: "Behind", number: true, of: (row) => duration(behind(row)) },
      { name: "Waiting commits", number: true, of: ({ id }) => count(lags.get(flows.get(id)?.id)?.commits ?? null) },
      { name: "On disk", number: true, of: ({ id }) => bytes(sizes.get(name(id))) },
      { name: "State", number: true, of: ({ id }) => bytes(state(id) || null) },
    ], rows, { empty: "There are no objects yet: CREATE TABLE makes one." })),
  ];
}

let chosenDataflow = null;

async function dataflowsPage() {
  const found = await read("schemas", "objects", "dataflows", "lags", "hydration", "operators", "arrangements");
  const name = namesOf(found);
  const lags = by(found.lags, "dataflow_id");
  const hydration = by(found.hydration, "dataflow_id");
  const flows = found.dataflows;
  const one = flows.find(({ id }) => id === chosenDataflow) ?? flows[0];
  if (!one) return [h("section", { class: "card" }, h("p", { class: "empty" }, "No dataflow runs. A materialized view or a subscribed query starts one."))];
  const title = (flow) => (flow.object_id === null ? `query ${flow.id}` : name(flow.object_id));
  const operators = found.operators.filter(({ dataflow_id: id }) => id === one.id);
  const memory = new Map();
  for (const row of found.arrangements.filter(({ dataflow_id: id, operator_id: at }) => id === one.id && at !== null)) {
    memory.set(row.operator_id, (memory.get(row.operator_id) ?? 0) + Number(row.memory_bytes));
  }
  const [lag, progress] = [lags.get(one.id), hydration.get(one.id)];
  const isHidden = found.hidden.includes("mz_internal.mz_dataflow_operators");
  return [missing(found), h("div", { class: "list" },
    h("section", { class: "card choices", "aria-label": "Dataflows" }, h("h2", {}, "Dataflows"), flows.map((flow) => h("button", {
      type: "button", "data-id": flow.id, "aria-pressed": String(flow === one), click: () => { chosenDataflow = flow.id; refresh(); },
    }, title(flow), " ", badge(flow.error ? "error" : flow.hydrated ? flow.rule : "hydrating", { error: "bad", hydrating: "warn", incremental: "good" })))),
    h("section", { class: "card" }, h("h2", {}, title(one)),
      h("div", { class: "tiles" }, tile("Steps", count(one.steps)), tile("Mean step", duration(one.mean_step_ms) ?? "–"),
        tile("Last step", duration(one.last_step_ms) ?? "–"), tile("Behind", duration(lag?.lag_ms) ?? "–"),
        tile("Waiting commits", count(lag === undefined ? 0 : lag.commits ?? null)),
        tile("Hydration", one.hydrated ? duration(progress?.last_ms) ?? "done" : progress ? `${progress.operators_done} of ${progress.operators}` : "running")),
      one.error ? h("p", { class: "error" }, one.error) : null,
      operators.length ? h("div", { class: "scroll tall", tabindex: 0 }, graph(operators, memory))
        : isHidden ? null : h("p", { class: "empty" }, "The whole query is computed again for each change, or it is an arrangement of one relation."))),
  ];
}

async function holdsPage() {
  const found = await read("schemas", "objects", "holds", "held", "frontiers");
  const name = namesOf(found);
  const frontiers = by(found.frontiers, "object_id");
  const on = ({ id }) => found.held.filter((row) => row.hold_id === id).map((row) => row.on_id);
  const lag = (hold) => {
    const uppers = on(hold).map((id) => Number(frontiers.get(id)?.write_frontier)).filter(Number.isFinite);
    return uppers.length ? Math.max(0, Math.min(...uppers) - Number(hold.at)) : null;
  };
  return [missing(found), h("section", { class: "card" }, h("h2", {}, "Holds"), table([
    { name: "Name", of: ({ id }) => name(id) },
    { name: "On", of: (hold) => on(hold).map(name).join(", ") },
    { name: "At", number: true, of: ({ at }) => clock(at) },
    { name: "Lag", number: true, of: (hold) => duration(lag(hold)) },
    { name: "Max lag", number: true, of: ({ max_lag: most }) => most },
    { name: "Status", of: ({ status: state }) => badge(state, { ok: "good", advanced: "bad" }) },
  ], found.holds, { empty: "There are no holds. CREATE HOLD keeps history for a client that will return." }))];
}

const STATES = { running: "good", stalled: "bad", failed: "bad", starting: "warn" };

async function sourcesPage() {
  const found = await read("sources", "sourceNumbers", "sinks", "sinkNumbers", "frontiers");
  const [sourceNumbers, sinkNumbers] = [by(found.sourceNumbers, "id"), by(found.sinkNumbers, "id")];
  const now = latest(found.frontiers);
  return [
    missing(found),
    h("section", { class: "card" }, h("h2", {}, "Sources"), table([
      { name: "Name", of: (row) => row.name },
      { name: "Type", of: (row) => row.type },
      { name: "Status", of: (row) => badge(row.status, STATES) },
      { name: "Messages", number: true, of: ({ id }) => count(sourceNumbers.get(id)?.messages_received ?? null) },
      { name: "Received", number: true, of: ({ id }) => bytes(sourceNumbers.get(id)?.bytes_received) },
      { name: "Updates", number: true, of: ({ id }) => count(sourceNumbers.get(id)?.updates_committed ?? null) },
      { name: "Error", of: (row) => row.error },
    ], found.sources, { empty: "There are no sources." })),
    h("section", { class: "card" }, h("h2", {}, "Sinks"), table([
      { name: "Name", of: (row) => row.name },
      { name: "Type", of: (row) => row.type },
      { name: "Status", of: (row) => badge(row.status, STATES) },
      { name: "Frontier", number: true, of: (row) => clock(row.frontier) },
      { name: "Behind", number: true, of: (row) => (row.frontier === null ? null : duration(Math.max(0, now - row.frontier))) },
      { name: "Updates", number: true, of: ({ id }) => count(sinkNumbers.get(id)?.updates_written ?? null) },
      { name: "Errors", number: true, of: ({ id }) => count(sinkNumbers.get(id)?.errors ?? null) },
      { name: "Error", of: (row) => row.error },
    ], found.sinks, { empty: "There are no sinks." })),
  ];
}

async function activityPage() {
  const found = await read("schemas", "objects", "sessions", "subscriptions", "activity");
  const name = namesOf(found);
  const pids = new Map(found.sessions.map(({ id, connection_id: pid }) => [id, pid]));
  const followed = (pid) => found.subscriptions.filter((row) => pids.get(row.session_id) === pid);
  const act = (label, call, pid) => h("button", { type: "button", click: async () => {
    await tidewire.query(`SELECT ${call}($1::int)`, [pid]);
    refresh();
  } }, label);
  return [
    missing(found),
    h("div", { class: "tiles" }, tile("Sessions", count(found.activity.length)), tile("Subscribers", count(found.subscriptions.length))),
    h("section", { class: "card" }, h("h2", {}, "Sessions"), table([
      { name: "Process", number: true, of: ({ pid }) => pid },
      { name: "User", of: (row) => row.usename },
      { name: "Application", of: (row) => row.application_name || null },
      { name: "Address", of: (row) => row.client_addr },
      { name: "Since", of: (row) => row.backend_start?.slice(0, 19) },
      { name: "State", of: (row) => row.state },
      { name: "Statement", of: (row) => row.query?.slice(0, 200) || null },
      { name: "Subscribed to", of: ({ pid }) => followed(pid).flatMap((row) => row.referenced_object_ids).map(name).join(", ") || null },
      { name: "", of: ({ pid }) => h("span", {}, act("Cancel", "pg_cancel_backend", pid), " ", act("End", "pg_terminate_backend", pid)) },
    ], found.activity, { empty: "There are no sessions." })),
  ];
}

const PAGES = { objects: objectsPage, dataflows: dataflowsPage, holds: holdsPage, sources: sourcesPage, activity: activityPage };

// -- the frame ---------------------------------------------------------------------------------------------------------

let catalogNames = [];
const editor = editorPage(tidewire, () => catalogNames);
let shown = null;
let refreshing = null; // the page that is being read

async function readNames() {
  const { schemas, objects, columns } = await read("schemas", "objects", "columns");
  const name = namesOf({ schemas, objects });
  const own = objects.filter(({ id }) => id.startsWith("u"));
  const system = objects.filter(({ id }) => !id.startsWith("u"));
  const ownIds = new Set(own.map(({ id }) => id));
  const short = (full) => full.replace(/^public\./, "");
  catalogNames = [
    ...own.map(({ id }) => short(name(id))), ...columns.filter(({ id }) => ownIds.has(id)).map((column) => column.name),
    ...system.map(({ id }) => name(id)),
  ].map((full) => full.split(".").map(quoted).join("."));
}

function quoted(name) {
  return /^[a-z_][a-z0-9_$]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** Shows the current page again, with the focus and the scroll positions where they were. */
async function refresh() {
  const page = location.hash.slice(1) || "sql";
  if (page === "sql" || !PAGES[page]) return;
  if (refreshing === page) return;
  refreshing = page;
  try {
    const elements = await PAGES[page]();
    if (page !== location.hash.slice(1)) return;
    const scrolled = [...main.querySelectorAll(".scroll")].map(({ scrollTop, scrollLeft }) => [scrollTop, scrollLeft]);
    const focused = [...main.querySelectorAll("button, .scroll")].indexOf(document.activeElement);
    main.replaceChildren(...elements.filter((element) => element !== null));
    [...main.querySelectorAll(".scroll")].forEach((element, at) => element.scrollTo(scrolled[at]?.[1] ?? 0, scrolled[at]?.[0] ?? 0));
    if (focused >= 0) main.querySelectorAll("button, .scroll")[focused]?.focus({ preventScroll: true });
    report(null);
  } catch (error) {
    report(error);
    if (page === location.hash.slice(1) && !main.hasChildNodes()) main.replaceChildren(described(error));
  } finally {
    if (refreshing === page) refreshing = null;
  }
}

function report(error) {
  status.classList.toggle("bad", error !== null);
  status.textContent = error === null ? "connected" : error instanceof TidewireError && error.sqlstate === null ? "disconnected" : error.message;
}

function navigate() {
  const page = location.hash.slice(1) || "sql";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${page}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (page === shown) return;
  if (shown === "sql") editor.leave();
  shown = page;
  tables.reset();
  main.replaceChildren();
  if (page === "sql") {
    main.append(editor.element);
    editor.focus();
    readNames().then(() => report(null), report);
  } else {
    refresh();
  }
}

function theme(value) {
  document.documentElement.dataset.theme = value;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const preferred = () => localStorage.getItem("tidewire.theme") ?? (dark.matches ? "dark" : "light");
theme(preferred());
dark.addEventListener("change", () => theme(preferred()));
document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem("tidewire.theme", preferred() === "dark" ? "light" : "dark");
  theme(preferred());
});
addEventListener("hashchange", navigate);
navigate();
setInterval(() => { if (!document.hidden) refresh(); }, REFRESH_MS);
