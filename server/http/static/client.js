// The JavaScript client of Tidewire's HTTP API, for browsers and Node.js 20 or newer. An ES module without dependencies.
//
//     import { Tidewire } from "/client.js";
//     const tidewire = new Tidewire();
//     const { rows } = await tidewire.query("SELECT * FROM readings WHERE sensor = $1", [7]);
//     for await (const batch of tidewire.subscribe("readings")) console.log(batch.kind, batch.changes, batch.token);
//
// docs/http.md describes it.

const RETRIED = ["25P03", "54000", "57P01", "57P02", "57P03", "57P05"];
const RETRIED_CLASSES = ["08", "53"];

/** An error of the server. `sqlstate` is null if the server did not answer, or the connection was lost. */
export class TidewireError extends Error {
  constructor(message, { sqlstate = null, status = null, results = [], ...fields } = {}) {
    super(message);
    this.name = "TidewireError";
    this.sqlstate = sqlstate;
    this.status = status;
    this.results = results;
    this.detail = fields.detail ?? null;
    this.hint = fields.hint ?? null;
    this.position = fields.position ?? null;
  }

  /** Whether the same request may succeed later. */
  get isTransient() {
    return this.sqlstate === null || RETRIED.includes(this.sqlstate)
      || RETRIED_CLASSES.includes(this.sqlstate.slice(0, 2));
  }
}

/** The result of a statement. `rows` is null if it returns none. */
export class Result {
  constructor({ columns = null, rows = null, tag = "", notices = [] }) {
    this.columns = columns;
    this.rows = rows;
    this.tag = tag;
    this.notices = notices;
  }

  /** The rows as objects with a property for each column. */
  objects() {
    return (this.rows ?? []).map((row) => Object.fromEntries(this.columns.map(({ name }, i) => [name, row[i]])));
  }
}

export class Tidewire {
  #url;
  #headers = {};
  #database;
  #settings;

  /**
   * `url`: of the server; by default that of the page. `user` and `password`: by default the browser's.
   * `database` and `settings`: of the sessions.
   */
  constructor(url = globalThis.location?.origin, { user, password = "", database, settings = {} } = {}) {
    if (url === undefined) throw new TypeError("the URL of the server is required");
    this.#url = new URL(url);
    this.#database = database;
    this.#settings = settings;
    if (user !== undefined) {
      const bytes = new TextEncoder().encode(`${user}:${password}`);
      this.#headers.Authorization = `Basic ${btoa(String.fromCharCode(...bytes))}`;
    }
  }

  /** Executes one statement with parameters, or a text of several without. Returns the last one's Result. */
  async query(text, parameters, { signal, settings } = {}) {
    const body = parameters === undefined ? { query: text } : { query: text, parameters };
    const results = await this.#post(body, signal, settings);
    return results[results.length - 1];
  }

  /** Executes `[{query, parameters}, ...]` in one transaction. Returns the Result of each. */
  async execute(statements, { signal, settings } = {}) {
    return this.#post({ statements }, signal, settings);
  }

  async #post(body, signal, settings = {}) {
    const response = await this.#fetch(this.#address("/api/sql", {}), {
      method: "POST",
      headers: { ...this.#headers, "Content-Type": "application/json" },
      body: JSON.stringify({ ...body, settings: { ...this.#settings, ...settings } }),
      signal,
    });
    const answer = await answered(response);
    const results = (answer.results ?? []).map((result) => new Result(result));
    if (answer.error) throw failure(answer.error, response.status, results);
    return results;
  }

  #address(path, parameters) {
    const address = new URL(path, this.#url);
    const all = { ...parameters, database: this.#database };
    for (const [name, value] of Object.entries(all)) {
      if (value !== undefined && value !== null) address.searchParams.set(name, value);
    }
    return address;
  }

  async #fetch(address, options) {
    try {
      return await fetch(address, { cache: "no-store", ...options });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new TidewireError(`the server does not answer: ${error.cause?.message ?? error.message}`);
    }
  }

  /**
   * Yields the batches of a subscription to `query`, the name of a relation or a SELECT.
   *
   * A batch has all changes of one timestamp, and the token from which to resume after it:
   * `{kind: "snapshot" | "update" | "progress", time, columns, changes: [{diff, row}], progress, token, ack()}`. With an
   * envelope a change has `state` instead of `diff`. `ack()` advances `hold` to the batch.
   *
   * A lost connection is resumed from the last batch, at most `attempts` times in succession. Leaving the loop, or
   * `signal`, ends the subscription. `transport` is "events" or "websocket", which cannot slow the server down. With a
   * `user` it is always "events".
   */
  async *subscribe(query, options = {}) {
    const { token = null, hold = null, signal, attempts = 10, ...rest } = options;
    const acknowledge = hold === null ? async () => {} : this.#advance(hold);
    const reader = new Reader(token, rest.snapshot ?? true, acknowledge);
    for (let failures = 0; ;) {
      const controller = new AbortController();
      const abort = () => controller.abort(signal.reason);
      signal?.throwIfAborted();
      signal?.addEventListener("abort", abort);
      try {
        const parameters = subscription(query, { ...rest, token: reader.token });
        // A WebSocket cannot send a user and password: the server would take it for one of the default user.
        const events = rest.transport === "websocket" && this.#headers.Authorization === undefined
          ? this.#messages(parameters, controller.signal)
          : this.#events(parameters, controller.signal);
        for await (const { event, data } of events) {
          if (event === "failure") throw failure(data);
          for (const batch of reader.receive(event, data)) {
            failures = 0;
            yield batch;
          }
          if (event === "end") return;
        }
        throw new TidewireError("the connection was lost");
      } catch (error) {
        signal?.throwIfAborted();
        const isTransient = error instanceof TidewireError && error.isTransient;
        if (!isTransient || ++failures > attempts) throw error;
      } finally {
        signal?.removeEventListener("abort", abort);
        controller.abort();
      }
      const longest = Math.min(15_000, 200 * 2 ** (failures - 1));
      await sleep(Math.random() * longest, signal);
    }
  }

  /**
   * Yields the batches of several queries: each has all changes of all of them at one timestamp.
   *
   * `queries` is an object of names to queries, or to `{query, parameters, key, envelope, orderBy}`. A batch is
   * `{kind, time, parts, progress, token, ack()}`. `parts` has, by name, the `columns` and `changes` of all queries in a
   * snapshot, and of those that changed in an update. `hold` names one hold on all relations. The options `asOf`,
   * `upTo`, `token`, `signal`, `attempts` and `transport` are those of `subscribe`, for all queries.
   *
   * Each query has a connection. Only that of the query with the least progress is read: the changes of the others wait
   * on the server.
   */
  async *followTogether(queries, { token: from = null, hold = null, ...options } = {}) {
    const tokens = from === null ? {} : JSON.parse(from);
    if (!Object.keys(queries).length) throw new TypeError("there is no query to follow");
    const streams = Object.entries(queries).map(([name, given]) => {
      const { query, ...parts } = typeof given === "string" ? { query: given } : given;
      if (from !== null && tokens[name] === undefined) throw new TypeError(`the token has no query "${name}"`);
      const token = tokens[name] ?? null;
      const batches = this.subscribe(query, { ...options, ...parts, token, snapshot: undefined });
      const keys = [parts.key ?? []].flat().length;
      return { name, envelope: parts.envelope, keys, batches, token, progress: 0, pending: [] };
    });
    const acknowledge = hold === null ? async () => {} : this.#advance(hold);
    const merge = new Merge(streams, from === null, acknowledge);
    try {
      while (merge.progress < Infinity) {
        const behind = streams.reduce((one, other) => (other.progress < one.progress ? other : one));
        const { value, done } = await behind.batches.next();
        if (done) {
          behind.progress = Infinity;
        } else {
          behind.progress = value.progress;
          behind.token = value.token;
          if (value.time !== null) behind.pending.push(value);
        }
        yield* merge.batches();
      }
    } finally {
      await Promise.all(streams.map(({ batches }) => batches.return()));
    }
  }

  async *#events(parameters, signal) {
    const headers = { ...this.#headers, Accept: "text/event-stream" };
    const response = await this.#fetch(this.#address("/api/subscribe", parameters), { headers, signal });
    if (response.status !== 200) throw failure((await answered(response)).error ?? {}, response.status);
    const parts = response.body.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
    let text = "";
    for (;;) {
      let part;
      try {
        part = await parts.next();
      } catch {
        signal.throwIfAborted();
        return; // lost
      }
      if (part.done) return;
      const events = (text + part.value).split("\n\n");
      text = events.pop();
      for (const one of events) {
        const fields = Object.fromEntries(one.split("\n").map((line) => {
          const colon = line.indexOf(": ");
          return [line.slice(0, colon), line.slice(colon + 2)];
        }));
        yield { event: fields.event, data: JSON.parse(fields.data) };
      }
    }
  }

  async *#messages(parameters, signal) {
    const address = this.#address("/api/subscribe", parameters);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    const received = [];
    let wake = () => {};
    let isOpen = true;
    let hasOpened = false;
    socket.onopen = () => { hasOpened = true; };
    socket.onmessage = ({ data }) => { received.push(JSON.parse(data)); wake(); };
    socket.onclose = () => { isOpen = false; wake(); };
    socket.onerror = socket.onclose; // Node.js 20 reports a refused WebSocket by this event only
    const abort = () => { isOpen = false; socket.close(); wake(); };
    signal.addEventListener("abort", abort);
    try {
      for (;;) {
        while (received.length) yield received.shift();
        signal.throwIfAborted();
        if (!isOpen) break;
        await new Promise((resolve) => { wake = resolve; });
      }
      // A browser does not show why a WebSocket was refused. The other transport does.
      if (!hasOpened) yield* this.#events(parameters, signal);
    } finally {
      signal.removeEventListener("abort", abort);
      socket.close();
    }
  }

  /** Returns a function that advances a hold. While an ADVANCE runs, only the last one that follows is kept. */
  #advance(hold) {
    const name = [hold].flat().map((part) => `"${part.replaceAll('"', '""')}"`).join(".");
    let running = null;
    let next = 0;
    const advance = async () => {
      try {
        while (next) {
          const time = next;
          next = 0;
          await this.query(`ALTER HOLD ${name} ADVANCE TO ${time}`);
        }
      } finally {
        running = null;
      }
    };
    return (progress) => {
      next = Math.max(next, progress - 1);
      running ??= advance();
      return running;
    };
  }
}

/** Collects rows until their timestamp is complete. The token covers only batches that were returned. */
class Reader {
  constructor(token, hasSnapshot, acknowledge) {
    this.token = token;
    this.awaitsSnapshot = hasSnapshot && token === null;
    this.acknowledge = acknowledge;
    this.pending = null;
    this.progress = 0; // of the last batch
  }

  * receive(event, data) {
    if (event === "start") {
      this.pending = this.awaitsSnapshot ? { time: data.as_of, changes: [] } : null;
      this.fingerprint = data.fingerprint;
      this.columns = data.columns.slice(2);
      this.change = data.columns[1].name === "mz_diff"
        ? ([, diff, ...row]) => ({ diff, row })
        : ([, state, ...row]) => ({ state, row });
    } else if (event === "rows") {
      for (const row of data) {
        if (this.pending !== null && row[0] > this.pending.time) yield this.complete();
        this.pending ??= { time: row[0], changes: [] };
        this.pending.changes.push(this.change(row));
      }
    } else if (event === "progress") {
      if (this.pending !== null && this.pending.time < data.progress) yield this.complete();
      const batch = { kind: "progress", time: null, columns: this.columns, changes: [] };
      if (this.pending === null && data.progress > this.progress) yield this.batch(batch, data.progress);
    } else if (event === "end" && this.pending !== null) {
      yield this.complete();
    }
  }

  complete() {
    const { time, changes } = this.pending;
    const kind = this.awaitsSnapshot ? "snapshot" : "update";
    this.pending = null;
    this.awaitsSnapshot = false;
    return this.batch({ kind, time, columns: this.columns, changes }, time + 1);
  }

  batch(fields, progress) {
    this.token = `tw1:${this.fingerprint}:${progress}`;
    this.progress = progress;
    return { ...fields, progress, token: this.token, ack: () => this.acknowledge(progress) };
  }
}

// The time of the snapshot of a query that reads no relation is greater: it is the same at all times.
const LAST_TIME = 2 ** 63;

/** Merges streams by progress. A batch at a time is returned when the progress of all streams is greater. */
class Merge {
  constructor(streams, awaitsSnapshot, acknowledge) {
    this.streams = streams;
    this.awaitsSnapshot = awaitsSnapshot;
    this.acknowledge = acknowledge;
    this.progress = 0; // of the last batch; Infinity if all streams have ended
  }

  * batches() {
    const frontier = Math.min(...this.streams.map(({ progress }) => progress));
    if (this.awaitsSnapshot && frontier > 0) {
      const starts = this.streams.map(({ pending }) => pending[0].time);
      const times = starts.filter((start) => start < LAST_TIME);
      const time = times.length ? Math.max(...times) : starts[0];
      if (time < frontier) yield this.snapshot(time);
    }
    while (!this.awaitsSnapshot) {
      const time = Math.min(...this.streams.map(({ pending }) => pending[0]?.time ?? Infinity));
      if (time >= frontier) break;
      const changed = this.streams.filter(({ pending }) => pending[0]?.time === time);
      yield this.batch("update", time, changed.map(({ name, pending }) => [name, pending.shift()]), time + 1);
    }
    if (frontier === Infinity) this.progress = Infinity;
    else if (!this.awaitsSnapshot && frontier > this.progress) yield this.batch("progress", null, [], frontier);
  }

  /** The contents of all queries at `time`: the snapshot of each, and its updates until then. */
  snapshot(time) {
    this.awaitsSnapshot = false;
    const parts = this.streams.map((stream) => {
      const later = stream.pending.findIndex((batch, i) => i > 0 && batch.time > time);
      const batches = stream.pending.splice(0, later < 0 ? stream.pending.length : later);
      return [stream.name, folded(batches, stream)];
    });
    return this.batch("snapshot", time, parts, time + 1);
  }

  batch(kind, time, parts, progress) {
    this.progress = progress;
    const tokens = this.streams.map(({ name, token }) => [name, token.replace(/[0-9]+$/, progress)]);
    return {
      kind,
      time,
      parts: Object.fromEntries(parts.map(([name, { columns, changes }]) => [name, { columns, changes }])),
      progress,
      token: JSON.stringify(Object.fromEntries(tokens)),
      ack: () => this.acknowledge(progress),
    };
  }
}

/** The snapshot that follows from an earlier one by updates. With an envelope, the first `keys` columns are the key. */
function folded([snapshot, ...updates], { envelope, keys }) {
  const { columns } = snapshot;
  if (!updates.length) return snapshot;
  const isBefore = (i) => envelope === "debezium" && i >= keys && columns[i].name.startsWith("before_");
  const changes = new Map();
  for (const { diff, state, row } of [snapshot, ...updates].flatMap((batch) => batch.changes)) {
    const text = JSON.stringify(envelope ? row.slice(0, keys) : row);
    const total = (changes.get(text)?.diff ?? 0) + diff;
    if (total === 0 || state === "delete") {
      changes.delete(text);
    } else if (!envelope) {
      changes.set(text, { diff: total, row });
    } else if (envelope === "debezium" && state === "upsert") {
      changes.set(text, { state: "insert", row: row.map((value, i) => (isBefore(i) ? null : value)) });
    } else {
      changes.set(text, { state, row });
    }
  }
  return { columns, changes: [...changes.values()] };
}

function subscription(query, { parameters, key, envelope, orderBy, asOf, upTo, snapshot, token }) {
  return {
    query,
    parameters: parameters && JSON.stringify(parameters),
    key: key && JSON.stringify([key].flat()),
    envelope,
    order_by: orderBy,
    as_of: asOf,
    up_to: upTo,
    snapshot,
    token,
  };
}

/** The JSON of a response. An error of the port itself, or of a proxy, may be text. */
async function answered(response) {
  const text = await response.text().catch(() => "");
  try {
    return JSON.parse(text);
  } catch {
    const sqlstate = response.status >= 500 ? null : "08P01";
    return { error: { message: text.trim() || `HTTP status ${response.status}`, sqlstate } };
  }
}

function failure({ message = "unknown error", ...fields }, status = null, results = []) {
  return new TidewireError(message, { ...fields, status, results });
}

function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}
