"""Load generators: sources of invented data, for demonstrations, tests and benchmarks.

`generator`        the interface of a generator: its outputs, and their changes by tick
`columns`          columns of random values that are functions of a seed and a row's number
`counter`, `auction`, `key_value`, `tpch`    the generators
`load_generator`   the kind of source, and its upstream

The changes of a tick are a function of the options and of the tick's number. The state of a source is therefore the
number of the next tick, and a restart continues without a gap or a repetition.
"""
