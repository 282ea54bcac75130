"""Sessions of PostgreSQL's clients, as their users write them. `make test-clients` installs and runs them."""
