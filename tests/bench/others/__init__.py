"""Other engines that keep the same aggregate up, each a process: `python PROGRAM BASE [DIRECTORY]`.

It takes in the Parquet file BASE (k, v, diff), prints `ready`, then for each line of its standard input, the path of
another such file, takes that in and prints the seconds that passed until the changed groups were out.
"""
