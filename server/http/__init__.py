"""The HTTP port: the API, the console, metrics and probes.

`port`            the port and its limits; `tls_transport`: HTTPS; `access`: who may use it; `origins`: which web pages
`responses`       text, errors; `request_limits`: the number of requests, and the memory of their bodies
`monitoring`      /metrics, /healthz, /readyz
`api`             the routes of the API; `openapi`: their description
`files`           the console and the JavaScript client, in `static/`
`sql`             POST /api/sql
`subscribe`       GET /api/subscribe; `subscription_query`: its parameters and tokens; `subscription_events`: its events
`api_session`     the session of a request; `row_formats`: the forms in which it sends rows
"""
