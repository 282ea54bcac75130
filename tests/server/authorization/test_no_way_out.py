"""SQL reaches no files, no network, no JVM and no process: each known way of Spark, DuckDB and PostgreSQL is refused.

The statements are those of a superuser. The server has no Spark: they are refused when they are planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine

SECRET = "hunter2-in-a-file"

SPARK = """
SELECT java_method('java.lang.System', 'getenv')
SELECT reflect('java.lang.Runtime', 'getRuntime')
SELECT try_reflect('java.lang.Runtime', 'getRuntime')
SELECT java_method('java.lang.System', 'getenv') FROM t
SELECT reflect('java.lang.System', 'exit', a) FROM t
SELECT * FROM parquet.`{file}`
SELECT * FROM text.`{file}`
SELECT * FROM csv.`file://{file}`
SELECT * FROM "text"."{file}"
SELECT * FROM "parquet"."{file}"
SELECT * FROM "file:{file}"
SELECT * FROM read_files('{file}')
SELECT input_file_name()
SELECT input_file_name() FROM t
SELECT input_file_block_start() FROM t
SELECT spark_partition_id() FROM t
SELECT version(), current_catalog(), spark_version()
SELECT * FROM t TABLESAMPLE (1 ROWS) USING reflect
SELECT transform(a) USING 'cat {file}' FROM t
FROM t SELECT TRANSFORM (a) USING 'cat {file}'
SELECT from_avro(a, '') FROM t
SELECT assert_true(false) FROM t
SELECT raise_error('XX000:x') FROM t
SELECT session_window(now(), '1 s') FROM t
SELECT http_get('http://127.0.0.1/')
SELECT ai_query('m', 'x')
SELECT load_file('{file}')
CREATE TABLE x USING parquet LOCATION '{file}'
CREATE TABLE x (a int) USING text OPTIONS (path '{file}')
CREATE EXTERNAL TABLE x (a int) LOCATION '{file}'
CREATE TEMPORARY VIEW x USING text OPTIONS (path '{file}')
CREATE FUNCTION f AS 'java.lang.Runtime'
CREATE TEMPORARY FUNCTION f AS 'org.apache.hadoop.hive.ql.udf.UDFJson' USING JAR '{file}'
CREATE FUNCTION f() RETURNS int LANGUAGE python AS 'import os'
CREATE FUNCTION f() RETURNS int LANGUAGE c AS '{file}'
ADD JAR '{file}'
ADD FILE '{file}'
LIST FILES
LOAD DATA INPATH '{file}' INTO TABLE t
INSERT OVERWRITE DIRECTORY '{file}.out' SELECT 1
INSERT OVERWRITE LOCAL DIRECTORY '{file}.out' USING csv SELECT 1
CACHE TABLE t
REFRESH '{file}'
ANALYZE TABLE t COMPUTE STATISTICS
SET -v
SET hivevar:x = '${{env:HOME}}'
DESCRIBE EXTENDED t
EXPLAIN CODEGEN SELECT 1
USE CATALOG spark_catalog
CALL system.set_current_snapshot()
EXECUTE IMMEDIATE 'SELECT 1'
DECLARE VARIABLE x = 1
"""

DUCKDB = """
SELECT * FROM read_csv('{file}')
SELECT * FROM read_csv_auto('{file}')
SELECT * FROM read_text('{file}')
SELECT * FROM read_blob('{file}')
SELECT * FROM read_parquet('{file}')
SELECT * FROM read_json('{file}')
SELECT * FROM pg_catalog.pg_class, read_text('{file}')
SELECT relname, (SELECT content FROM read_text('{file}')) FROM pg_class
SELECT relname, read_text('{file}') FROM pg_class
SELECT * FROM pg_class WHERE relname IN (SELECT content FROM read_text('{file}'))
SELECT * FROM '{file}'
SELECT relname FROM pg_class, '{file}' AS f
SELECT relname FROM pg_class, "{file}" AS f
SELECT * FROM glob('/*')
SELECT * FROM sniff_csv('{file}')
SELECT * FROM parquet_metadata('{file}')
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_extensions()
SELECT * FROM duckdb_logs()
SELECT * FROM query('SELECT 1')
SELECT * FROM query_table('t')
SELECT * FROM sqlite_scan('{file}', 't')
SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')
SELECT relname, getenv('HOME') FROM pg_class
SELECT relname, getvariable('x') FROM pg_class
SELECT relname, current_setting('secret_directory') FROM pg_class
SELECT relname FROM pg_class, pragma_version()
SELECT * FROM pragma_database_list()
COPY (SELECT * FROM pg_class) TO '{file}.out'
COPY pg_class TO '{file}.out' (FORMAT parquet)
EXPORT DATABASE '{file}.out'
ATTACH '{file}' AS x
ATTACH DATABASE 'http://127.0.0.1/x.db'
DETACH x
INSTALL httpfs
LOAD httpfs
FORCE INSTALL 'http://127.0.0.1/x.duckdb_extension'
PRAGMA database_list
PRAGMA enable_profiling
CREATE SECRET s (TYPE s3)
CREATE MACRO m(a) AS a
SET enable_external_access = true
SET extension_directory = '{file}'
SET temp_directory = '{file}'
SET VARIABLE x = 1
"""

POSTGRES = """
COPY t FROM '{file}'
COPY t TO '{file}.out'
COPY t FROM PROGRAM 'cat {file}'
COPY t TO PROGRAM 'cat'
COPY (SELECT 1) TO PROGRAM 'cat'
SELECT pg_read_file('{file}')
SELECT pg_read_binary_file('{file}')
SELECT pg_read_file('{file}') FROM pg_class
SELECT pg_ls_dir('/')
SELECT * FROM pg_ls_logdir()
SELECT pg_stat_file('{file}')
SELECT pg_current_logfile()
SELECT pg_file_write('{file}.out', 'x', false)
SELECT lo_import('{file}')
SELECT lo_export(1, '{file}.out')
SELECT lo_from_bytea(0, 'x')
SELECT dblink('host=127.0.0.1', 'SELECT 1')
SELECT * FROM dblink('host=127.0.0.1', 'SELECT 1') AS x(a int)
SELECT query_to_xml('SELECT 1', true, true, '')
SELECT database_to_xml(true, true, '')
SELECT pg_rotate_logfile()
SELECT pg_promote()
SELECT pg_switch_wal()
SELECT pg_execute_server_program('cat')
SELECT set_config('session_preload_libraries', '{file}', false)
CREATE EXTENSION dblink
CREATE EXTENSION file_fdw
CREATE SERVER s FOREIGN DATA WRAPPER file_fdw
CREATE FOREIGN TABLE x (a text) SERVER s OPTIONS (filename '{file}')
CREATE LANGUAGE plpython3u
CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1' PUBLICATION p
CREATE TABLESPACE x LOCATION '{file}'
LOAD '{file}'
DO $$ BEGIN PERFORM 1; END $$
IMPORT FOREIGN SCHEMA x FROM SERVER s INTO public
ALTER SYSTEM SET archive_command = 'cat {file}'
ALTER SYSTEM SET shared_preload_libraries = '{file}'
SET dynamic_library_path = '{file}'
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    server = ServerThread(tmp_path_factory.mktemp("data"), PassingEngine())
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    yield server
    server.stop()


@pytest.mark.parametrize("statements", [SPARK, DUCKDB, POSTGRES], ids=["spark", "duckdb", "postgres"])
def test_statements_are_refused(statements: str, server: ServerThread, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text(f"{SECRET}\n")
    answered = []
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for line in statements.strip().splitlines():
            statement = line.format(file=file)
            try:
                cursor = connection.execute(statement.encode())
                shown = str(cursor.fetchall()) if cursor.description is not None else cursor.statusmessage
                answered.append(f"{statement} -> {shown}")
            except psycopg.Error as error:
                if SECRET in str(error) or str(error.sqlstate).startswith(("None", "XX", "58", "08")):
                    answered.append(f"{statement} -> {error}")
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert not answered, "\n".join(answered)
