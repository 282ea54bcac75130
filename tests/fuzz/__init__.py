"""Random damage to valid input: messages, statements, encoded rows, HTTP requests. `make test-fuzz` runs it.

FUZZ_MESSAGES is the number of messages of the wire protocol (a million); the other tests derive theirs from it.
FUZZ_SEED repeats a run. A failure names the seed and the input.

`mutations`   damage to bytes, sequences and JSON
`limits`      limits of the processor time and memory of one input
"""
