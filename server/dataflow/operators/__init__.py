"""The operators of a delta plan, with their state.

`operator`               the interface of operators, and what they share
`linear`                 operators that process each row by itself; `temporal_buffer` is the state of temporal filters
`join`                   inner joins
`accumulable_aggregate`  sums and counts by key
`distinct`               DISTINCT; `distinct_values`: distinct values of several subsets of rows
`recompute`              recomputation by key
`versions`               the rows of touched keys at each time of a step
`factory`                creates the operators of a plan
`step_cost`              decides when to compute all rows instead; `statistics`: counters
"""
