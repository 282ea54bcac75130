"""Delta plans: how the changes of a query's result are computed from the changes of its inputs."""
