"""Who may connect, and how a client proves its identity. Nothing here reads or writes sockets.

`rules`           the rule file
`verifiers`       passwords, and what is stored of them
`scram`           the exchange of SCRAM
`failures`        the limit of failed logins
`tls`             certificates
`access`          all of these for one server, and their reload
`first_password`  the superuser's password before the first login
"""
