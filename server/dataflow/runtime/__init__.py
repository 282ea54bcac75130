"""Running dataflows: hydration, steps, and the dataflows of views and indexes.

`dataflow`         hydrates a computation, follows its inputs and writes to a sink; `commit_rate`: its pauses
`computation`      the interface of computations, and `Recomputation`; `unplanned`: of a query without a plan
`incremental`      the computation by operators; `restoration` builds its state again after a recomputation
`index`            the dataflow of an index
`resting`          dataflows without work; `hydration`: the progress of hydrations
`preparation`      plans the statements of steps in advance
`spark_rows`       rows that Spark computes; `row_batches`: of several callers together; `statement_limit`: at most some
"""
