# FORMAT CSV, TEXT and BYTES. A message is a row; one that is not in the format is an error that remains.

> CREATE CONNECTION k TO KAFKA (BROKER '${testdrive.kafka-addr}', SECURITY PROTOCOL PLAINTEXT)

# TEXT: the value as UTF-8. BYTES: the value as it is.
$ kafka-create-topic topic=lines

$ kafka-ingest topic=lines format=bytes
plain
\xc3\xa9t\xc3\xa9
tab\tand\\backslash

> CREATE SOURCE texts FROM KAFKA CONNECTION k (TOPIC 'testdrive-lines-${testdrive.seed}') FORMAT TEXT

> SELECT text, length(text) FROM texts
plain 5
été 3
"tab\tand\\backslash" 17

> CREATE SOURCE raw FROM KAFKA CONNECTION k (TOPIC 'testdrive-lines-${testdrive.seed}') FORMAT BYTES

> SELECT encode(data, 'hex') FROM raw
706c61696e
c3a974c3a9
74616209616e645c6261636b736c617368

# A value that is no UTF-8 is an error of TEXT, and a value of BYTES.
$ kafka-ingest topic=lines format=bytes
\xff

> SELECT count(*) FROM raw
4

! SELECT * FROM texts
contains:Decode error: Text: 'utf-8' codec can't decode byte 0xff
detail:Topic "testdrive-lines-${testdrive.seed}", partition 0, offset 3.
hint:No later message removes this error

# CSV: the number of columns, or their names. The types of all are text.
$ kafka-create-topic topic=csv

$ kafka-ingest topic=csv format=bytes
1,"two, quoted"
3,"with ""quotes"""
,

> CREATE SOURCE counted FROM KAFKA CONNECTION k (TOPIC 'testdrive-csv-${testdrive.seed}') FORMAT CSV WITH 2 COLUMNS

> SELECT column1, column2 FROM counted
1 "two, quoted"
3 "with \"quotes\""
"" ""

> CREATE SOURCE named (id, words) FROM KAFKA CONNECTION k (TOPIC 'testdrive-csv-${testdrive.seed}')
  FORMAT CSV WITH 2 COLUMNS INCLUDE OFFSET

> SELECT id, words, "offset" FROM named
1 "two, quoted" 0
3 "with \"quotes\"" 1
"" "" 2

$ kafka-create-topic topic=semicolons

$ kafka-ingest topic=semicolons format=bytes
a;b,c

> CREATE SOURCE semicolons FROM KAFKA CONNECTION k (TOPIC 'testdrive-semicolons-${testdrive.seed}')
  FORMAT CSV WITH 2 COLUMNS DELIMITED BY ';'

> SELECT * FROM semicolons
a b,c

# A line with another number of fields.
$ kafka-ingest topic=csv format=bytes
1,2,3

! SELECT * FROM counted
contains:Decode error
detail:Topic "testdrive-csv-${testdrive.seed}", partition 0, offset 3.
