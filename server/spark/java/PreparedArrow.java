package tidewire;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Arrow's vectors for the tables and the result of a prepared statement.
 *
 * For each result, Spark's ArrowConverters derive Arrow's schema from Spark's, estimate its size by reflection
 * (SizeEstimator), serialize it, and allocate vectors of 32 KB for each column. For a few rows this takes longer than
 * everything else. Here the schema and the vectors' objects are kept between two runs. Their memory is not kept, so
 * nothing has to be closed.
 *
 * Janino ignores type arguments, so this file has casts that are redundant for javac.
 */
@SuppressWarnings("cast")
public class PreparedArrow {
    private static final int ROWS_MIN = 16; // the least initial capacity of an output
    private static final int ROWS_MAX = 4096; // the greatest one; vectors grow if they have more rows
    private static final byte[] NOTHING = {};
    private static final byte[] STREAM_END = {-1, -1, -1, -1, 0, 0, 0, 0};

    private PreparedArrow() {}

    private static Schema arrowSchema(StructType schema) {
        ArrowUtils$ utils = ArrowUtils$.MODULE$;
        return utils.toArrowSchema(schema, "UTC", true, false, utils.toArrowSchema$default$5());
    }

    private static VectorSchemaRoot vectors(Schema schema) {
        return VectorSchemaRoot.create(schema, ArrowUtils$.MODULE$.rootAllocator());
    }

    /** Returns the first message of a stream: the schema. */
    public static byte[] head(StructType schema) throws IOException {
        return head(arrowSchema(schema));
    }

    private static byte[] head(Schema schema) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(bytes)), schema);
        return bytes.toByteArray();
    }

    /** Writes a block: a stream of one record batch, or of none if `batch` is empty. */
    public static void writeStream(byte[] head, byte[] batch, DataOutputStream out) throws IOException {
        out.writeInt(head.length + batch.length + STREAM_END.length);
        out.write(head);
        out.write(batch);
        out.write(STREAM_END);
    }

    /** The rows of one record batch. */
    public static class Input {
        private final VectorSchemaRoot root;
        private final VectorLoader loader;
        private final ArrowColumnVector[] columns;
        private boolean isLoaded;

        public Input(StructType schema) {
            root = vectors(arrowSchema(schema));
            loader = new VectorLoader(root);
            columns = new ArrowColumnVector[root.getFieldVectors().size()];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = new ArrowColumnVector((FieldVector) root.getFieldVectors().get(i));
            }
        }

        /** Returns an iterator over the rows. All iterators before `release` are over the same batch. */
        public java.util.Iterator<InternalRow> rows(byte[] batch) {
            if (!isLoaded) {
                ArrowRecordBatch loaded =
                        ArrowConverters$.MODULE$.loadBatch(batch, ArrowUtils$.MODULE$.rootAllocator());
                try {
                    isLoaded = true;
                    loader.load(loaded);
                } finally {
                    loaded.close();
                }
            }
            return new ColumnarBatch(columns, root.getRowCount()).rowIterator();
        }

        /** Frees the memory of the batch. The iterators must not be used any more. */
        public void release() {
            if (isLoaded) {
                isLoaded = false;
                root.clear();
            }
        }
    }

    /** Writes rows as blocks, each a complete Arrow stream. */
    public static class Output {
        private final byte[] head;
        private final VectorSchemaRoot root;
        private final ArrowWriter writer;
        private final VectorUnloader unloader;
        private int capacity = ROWS_MIN;

        public Output(StructType schema) throws IOException {
            Schema arrow = arrowSchema(schema);
            head = head(arrow);
            root = vectors(arrow);
            writer = ArrowWriter$.MODULE$.create(root);
            unloader = new VectorUnloader(root);
            root.clear();
        }

        /** Writes a block without rows. */
        public void writeNone(DataOutputStream out) throws IOException {
            writeStream(head, NOTHING, out);
        }

        /** Writes the rows in blocks of limited size. Returns whether there were any. */
        public boolean write(
                scala.collection.Iterator<InternalRow> rows, long rowsMax, long bytesMax, DataOutputStream out)
                throws IOException {
            boolean hasRows = false;
            while (rows.hasNext()) {
                hasRows = true;
                writeStream(head, next(rows, rowsMax, bytesMax), out);
            }
            return hasRows;
        }

        private byte[] next(scala.collection.Iterator<InternalRow> rows, long rowsMax, long bytesMax) {
            try {
                for (int i = 0; i < root.getFieldVectors().size(); i++) {
                    FieldVector vector = (FieldVector) root.getFieldVectors().get(i);
                    vector.setInitialCapacity(capacity);
                    vector.allocateNew();
                }
                int count = 0;
                long bytes = 0; // estimated, as in ArrowConverters
                do {
                    InternalRow row = (InternalRow) rows.next();
                    writer.write(row);
                    count++;
                    bytes += row instanceof UnsafeRow ? ((UnsafeRow) row).getSizeInBytes() : 8L * row.numFields();
                } while (rows.hasNext() && count < rowsMax && bytes < bytesMax);
                writer.finish();
                capacity = Math.max(ROWS_MIN, Math.min(ROWS_MAX, count));
                ArrowRecordBatch batch = unloader.getRecordBatch();
                try {
                    return ArrowConverters$.MODULE$.serializeBatch(batch);
                } finally {
                    batch.close();
                }
            } finally {
                writer.reset();
                root.clear();
            }
        }
    }
}
