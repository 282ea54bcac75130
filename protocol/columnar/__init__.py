"""Work on Arrow columns with numpy, which the wire formats and the catalog share.

`buffers`   views of Arrow's buffers
`hashing`   hashes and order-preserving codes of values; `scalar_hashing`: the same hashes for single rows
`equality`  which rows are equal
`gather`    rows at given positions
`reasons`   why rows that were decoded in parts are invalid
"""
