"""Faults, for real: a server process, clients that write and follow, and everything that can break, at random moments.

    child.py        the server process, with a clock to be stepped, moments to die at, and mistakes to be found
    moments.py      the places in the server's work at which it can be told to die
    mistakes.py     what a wrong server would do: each has to be found, or the harness checks nothing
    writers.py      clients that write, and remember what they were told
    subscriber.py   a client process that follows a relation, keeps what it was told, and resumes after any end
    history.py      what all of them saw, and whether it can be true
    world.py        one run: lives of a server, faults by a seed, and the figures
    test_faults.py  the run; test_mistakes.py: runs of wrong servers; test_full_disk.py: a disk without room

    recorder.py     what a process did to its files, by strace
    disk.py         the files as they may be after power was lost in the middle of it
    failing_sync.py a process of whose syncs one fails
    test_lost_power.py, test_failing_sync.py

`make test-faults` runs all of it. Every run prints its seed; FAULTS_SEED=n repeats its choices.
"""
