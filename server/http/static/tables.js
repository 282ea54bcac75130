// The system tables that the console reads. No dependencies, so that Node.js can test it.

export const TABLES = {
  schemas: "SELECT * FROM mz_catalog.mz_schemas",
  objects: "SELECT * FROM mz_catalog.mz_objects",
  columns: "SELECT * FROM mz_catalog.mz_columns",
  frontiers: "SELECT * FROM mz_internal.mz_frontiers",
  holds: "SELECT * FROM mz_catalog.mz_holds",
  held: "SELECT * FROM mz_catalog.mz_hold_objects",
  dataflows: "SELECT * FROM mz_internal.mz_dataflows",
  lags: "SELECT * FROM mz_internal.mz_dataflow_lags",
  hydration: "SELECT * FROM mz_internal.mz_hydration_statuses",
  operators: "SELECT * FROM mz_internal.mz_dataflow_operators",
  arrangements: "SELECT * FROM mz_internal.mz_arrangements",
  sources: "SELECT * FROM mz_internal.mz_source_statuses",
  sourceNumbers: "SELECT * FROM mz_internal.mz_source_statistics",
  sinks: "SELECT * FROM mz_internal.mz_sink_statuses",
  sinkNumbers: "SELECT * FROM mz_internal.mz_sink_statistics",
  sessions: "SELECT * FROM mz_internal.mz_sessions",
  subscriptions: "SELECT * FROM mz_internal.mz_subscriptions",
  activity: "SELECT pid, usename, application_name, client_addr, backend_start, state, query FROM pg_catalog.pg_stat_activity "
    + "ORDER BY pid",
  sizes: "SELECT n.nspname, c.relname, pg_total_relation_size(c.oid)::text AS bytes FROM pg_catalog.pg_class c "
    + "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'm') "
    + "AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'mz_catalog', 'mz_internal')",
};

// The columns of tables of which only superusers may read all.
const PUBLIC = {
  dataflows: "id, object_id, rule, write_frontier, hydrated, steps, last_step_ms, mean_step_ms, max_step_ms, steps_ms",
  lags: "dataflow_id, lag_ms, holds_writers",
  sources: "id, name, type, last_status_change_at, status",
  sinks: "id, name, type, status, frontier, held_at",
};

/** Reads system tables as far as the role may read them. */
export class Tables {
  #tidewire;
  #denied = new Set();
  #reduced = new Set();

  constructor(tidewire) {
    this.#tidewire = tidewire;
  }

  /** Tries the tables again that could not be read, since privileges may have been granted. */
  reset() {
    this.#denied.clear();
    this.#reduced.clear();
  }

  #query(name) {
    return this.#reduced.has(name) ? TABLES[name].replace("*", PUBLIC[name]) : TABLES[name];
  }

  /**
   * Reads tables in one transaction, each as an array of objects. Columns that the role may not read are missing. A table
   * that it may not read at all is empty, and the property `hidden` has its full name.
   */
  async read(...names) {
    for (;;) {
      const readable = names.filter((name) => !this.#denied.has(name));
      try {
        const results = readable.length ? await this.#tidewire.execute(readable.map((name) => ({ query: this.#query(name) }))) : [];
        const rows = (name) => (readable.includes(name) ? results[readable.indexOf(name)].objects() : []);
        const hidden = names.filter((name) => !readable.includes(name)).map((name) => / FROM (\S+)/.exec(TABLES[name])[1]);
        return { ...Object.fromEntries(names.map((name) => [name, rows(name)])), hidden };
      } catch (error) {
        // The queries before the one that failed have results.
        const failed = readable[error.results?.length];
        if (error.sqlstate !== "42501" || failed === undefined) throw error;
        (failed in PUBLIC && !this.#reduced.has(failed) ? this.#reduced : this.#denied).add(failed);
      }
    }
  }
}
