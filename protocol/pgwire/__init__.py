"""The server side of PostgreSQL's frontend/backend protocol, version 3, without IO.

- `connection` converts between bytes and messages and tracks the protocol's phases. `messages` defines the messages of
  both sides; `call` parses the usual sequence of them in one step.
- `errors` and `types` define the errors and types that the whole server uses.
- Output: `encode` writes columns (`text_columns`, `binary_columns`), `single_row` one row, `json_rows` JSON.
- Input: `decode` reads columns and parameters, `scalars` single values. `copy_in` reads COPY data (`copy_text`,
  `copy_binary`) with the options of `copy_options` and the errors of `copy_errors`.
- Values: `datetime_input`, `datetime_output` and `datetime_text`, `interval_input`, `input_style`, `timezones`,
  `floats`, `json_values`, `network`, `enums`, `nested_lists`, `utf8`.
"""
