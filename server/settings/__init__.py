"""The variables of SET, SHOW and RESET, with PostgreSQL's names, defaults and messages.

- `variables`: all variables, their defaults and the check of a value.
- `parsers`: the parsers of values.
- `session_settings`: the values of one session.

Values are kept as text, as SHOW prints them. A change of a variable with GUC_REPORT is sent to the client as
ParameterStatus.
"""
