"""Tests with real faults: a server process, clients that write and subscribe, and random faults in everything they use.

    child.py        the server process, with an adjustable clock, moments at which it dies, and mistakes
    moments.py      the places in the server's code at which it can be made to die
    mistakes.py     faults of a server; the tests must detect each of them
    writers.py      clients that write, and record what was acknowledged
    subscriber.py   a client process that subscribes to a relation, stores what it received, and resumes
    history.py      compares the records of all clients with a model
    world.py        one run: repeated starts of a server, faults chosen by a seed, and the figures
    test_faults.py  the run; test_mistakes.py: runs of faulty servers; test_full_disk.py: a full disk

    recorder.py     the file operations of a process, recorded by strace
    disk.py         the possible states of the files after a power failure
    failing_sync.py a process in which one sync fails
    test_lost_power.py, test_failing_sync.py

`make test-faults` runs all of them. Every run prints its seed; FAULTS_SEED=n repeats its choices.
"""
