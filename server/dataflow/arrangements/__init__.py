"""Arrangements: updates sorted by a key, in memory or in files, on the server or in Spark's executors.

`arrangement`            an arrangement, which consists of `run`s; `projected_arrangement` has some of its columns
`shared`                 the arrangements of collections, which indexes and operators share; `times` of their leases
`file_arrangement`       an arrangement whose runs are in files (`run_files`), searched by Spark's executors
`task_runner`            submits these searches as Spark statements
"""
