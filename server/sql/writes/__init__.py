"""Plans of writes: INSERT, UPDATE, DELETE and MERGE.

`statements`      plans INSERT, UPDATE and DELETE, with a `planner` for each statement; `merge`: MERGE
`plan`            a planned write; `added_rows`: the rows of an INSERT that needs neither a read nor Spark
`literals`        INSERTs of many literal rows
`conflict`        ON CONFLICT
`target`          the table that is written, and the views through which a statement names it; `updatable_views`: which
                  views can be named, and `check_options`: the conditions that they demand of new rows
"""
