package tidewire;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.net.Socket;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ThreadPoolExecutor;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.python.PythonSQLUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.ArraySeq$;

/**
 * One slot's endpoint inside Spark's JVM: reads statements and their Arrow tables from a socket, answers with Arrow.
 *
 * It is compiled at start by Janino, which Spark contains for its generated code; Janino supports only old Java syntax.
 * The other endpoint is bridge_path.py, which explains the purpose. Numbers are big-endian; a text or a block is an int
 * length and bytes.
 *
 *   request: text job group; int n, n x text (views to drop);
 *            int n, n x (text name, text Spark schema as JSON, int n, n x block (one record batch));
 *            boolean whether the statement will be repeated; text SQL
 *   answer:  blocks (each a complete Arrow stream: schema and batches), then int END and 3 x long: the nanoseconds
 *            spent on the tables, on planning, and on execution including the output of the blocks;
 *            at any point int FAILED instead, then the error as describe() writes it
 *
 * A repeated statement over small tables of the same schemas is not planned again; see PreparedPlan.java.
 *
 * Each slot has a thread, because Spark's active session, scheduler pool and job group are thread-local. A job
 * group belongs to one run of a statement; cancelling it cancels its running and future jobs.
 *
 * Janino ignores type arguments, so this file has casts that are redundant for javac.
 */
@SuppressWarnings("cast")
public class SparkBridge implements Runnable {
    private static final int END = -1;
    private static final int FAILED = -2;
    private static final int CAUSES_MAX = 16;
    private static final int TRACE_MAX = 20000;
    private static final int VIEW_TEMPLATES_MAX = 1000; // size of `viewTemplates`
    private static final int TASK_BATCH_ROWS_MAX = 1 << 13; // Spark limits a task's batch by its rows only
    private static final int KNOWN_BITS_MAX = 56; // a size estimate of more bits includes an RDD of unknown size
    private static final int PREPARED_BYTES_MAX = 1 << 24; // maximum size of a table of a prepared statement
    private static final int STATEMENT_LENGTH_MAX = 1 << 16; // longer statements are not prepared
    private static final Object SEEN = new Object(); // executed once, not prepared yet
    private static final Object UNSUPPORTED = new Object(); // cannot be prepared

    private SparkSession session;
    private String slot;
    private Socket socket;
    private long batchRowsMax;
    private long batchBytesMax;
    private final Map<String, TemporaryViewRelation> viewTemplates =
            new HashMap<String, TemporaryViewRelation>(); // views without rows, by name and schema
    private final Map<String, View> views = new HashMap<String, View>(); // of the session, by name

    /** A view. `made`: whether Spark has it. `batches`: the rows as received; null for a large view after that. */
    private static class View {
        String schema;
        byte[][] batches;
        boolean made;
    }

    /** Connects to `port` of the loopback interface, sends the token, and serves requests until the peer closes. */
    public void open(SparkSession session, String slot, int port, String token, long batchRowsMax, long batchBytesMax)
            throws IOException {
        SparkBridge bridge = new SparkBridge();
        bridge.session = session;
        bridge.slot = slot;
        bridge.socket = new Socket("127.0.0.1", port);
        bridge.socket.setTcpNoDelay(true);
        bridge.socket.getOutputStream().write(token.getBytes("US-ASCII"));
        bridge.batchRowsMax = batchRowsMax;
        bridge.batchBytesMax = batchBytesMax;
        Thread thread = new Thread(bridge, slot);
        thread.setDaemon(true);
        thread.start();
    }

    public void run() {
        try {
            SparkContext context = session.sparkContext();
            SparkSession.setActiveSession(session);
            context.setLocalProperty("spark.scheduler.pool", slot);
            DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
            DataOutputStream out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 1 << 16));
            while (true) {
                serve(in, out);
                out.flush();
            }
        } catch (EOFException hungUp) {
            return;
        } catch (IOException lost) {
            return; // the peer has disconnected or will see the closed socket
        } finally {
            StatementCache.remove(session.sessionUUID());
            try {
                socket.close();
            } catch (IOException closed) {
                return;
            }
        }
    }

    /** Reads the whole request before processing it, so that after an error the stream is at the next request. */
    private void serve(DataInputStream in, DataOutputStream out) throws IOException {
        String group = text(in);
        String[] dropped = new String[in.readInt()];
        for (int i = 0; i < dropped.length; i++) {
            dropped[i] = text(in);
        }
        int count = in.readInt();
        String[] names = new String[count];
        String[] schemas = new String[count];
        byte[][][] batches = new byte[count][][];
        for (int i = 0; i < count; i++) {
            names[i] = text(in);
            schemas[i] = text(in);
            batches[i] = new byte[in.readInt()][];
            for (int j = 0; j < batches[i].length; j++) {
                batches[i][j] = block(in);
            }
        }
        boolean repeats = in.readBoolean();
        String sql = text(in);
        SparkContext context = session.sparkContext();
        context.setJobGroup(group, null, false);
        RunningStatements.begin(group);
        try {
            long begun = System.nanoTime();
            for (int i = 0; i < dropped.length; i++) {
                views.remove(dropped[i]);
                session.catalog().dropTempView(dropped[i]);
            }
            for (int i = 0; i < count; i++) {
                View view = new View();
                view.schema = schemas[i];
                view.batches = batches[i];
                views.put(names[i], view);
                batches[i] = null;
            }
            Map<String, View> read = readBy(sql);
            PreparedPlan prepared = prepared(sql, read, repeats);
            if (prepared == null) {
                makeViews(read);
            }
            long made = System.nanoTime();
            long planned = made;
            if (prepared != null) {
                answer(prepared, read, group, out);
            } else {
                Dataset<Row> query = (Dataset<Row>) session.sql(sql);
                SparkPlan plan = query.queryExecution().executedPlan();
                planned = System.nanoTime();
                if (isLarge(query, plan)) {
                    answerInBatches(query, plan, out);
                } else {
                    answer(plan, out);
                }
            }
            long written = System.nanoTime();
            out.writeInt(END);
            out.writeLong(made - begun);
            out.writeLong(planned - made);
            out.writeLong(written - planned);
        } catch (IOException lost) {
            throw lost;
        } catch (Throwable thrown) {
            // Subqueries and broadcasts run concurrently: when one fails, the jobs of the others would continue.
            context.cancelJobGroupAndFutureJobs(group);
            RunningStatements.awaitTasks(context, group);
            Throwable reason = RunningStatements.reason(group);
            out.writeInt(FAILED);
            write(out, describe(reason != null ? reason : thrown));
        } finally {
            CodeCache.trim();
            RunningStatements.end(group);
        }
    }

    /** Returns the views whose names occur in the statement: a superset of those that it reads. */
    private Map<String, View> readBy(String sql) {
        Map<String, View> read = new TreeMap<String, View>();
        Iterator<Map.Entry<String, View>> entries = views.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<String, View> entry = (Map.Entry<String, View>) entries.next();
            if (isNamed(sql, (String) entry.getKey())) {
                read.put((String) entry.getKey(), (View) entry.getValue());
            }
        }
        return read;
    }

    private static boolean isNamed(String sql, String name) {
        for (int at = sql.indexOf(name); at >= 0; at = sql.indexOf(name, at + 1)) {
            int end = at + name.length();
            boolean begins = at == 0 || !Character.isJavaIdentifierPart(sql.charAt(at - 1));
            if (begins && (end == sql.length() || !Character.isJavaIdentifierPart(sql.charAt(end)))) {
                return true;
            }
        }
        return false;
    }

    /**
     * Returns the prepared statement, null if there is none. A statement is prepared at its second occurrence over
     * tables of the same names and schemas, or at its first one if it `repeats`, if all of them are small.
     */
    private PreparedPlan prepared(String sql, Map<String, View> read, boolean repeats) {
        if (read.isEmpty() || sql.length() > STATEMENT_LENGTH_MAX) {
            return null;
        }
        StringBuilder kind = new StringBuilder(sql);
        Iterator<Map.Entry<String, View>> entries = read.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<String, View> entry = (Map.Entry<String, View>) entries.next();
            View view = (View) entry.getValue();
            if (view.batches == null || bytes(view.batches) > PREPARED_BYTES_MAX) {
                return null;
            }
            kind.append('\n').append(entry.getKey()).append('\n').append(view.schema);
        }
        String key = kind.toString();
        Object known = StatementCache.get(session.sessionUUID(), key);
        if (known == SEEN || (known == null && repeats)) {
            known = prepare(sql, read);
        } else if (known == null) {
            known = SEEN;
        }
        StatementCache.put(session.sessionUUID(), key, known);
        return known instanceof PreparedPlan ? (PreparedPlan) known : null;
    }

    /** Returns a PreparedPlan, or UNSUPPORTED. Ignores errors: the normal execution of the statement reports them. */
    private Object prepare(String sql, Map<String, View> read) {
        Map<String, PreparedPlan.Rows> leaves = new HashMap<String, PreparedPlan.Rows>();
        try {
            Iterator<Map.Entry<String, View>> entries = read.entrySet().iterator();
            while (entries.hasNext()) {
                Map.Entry<String, View> entry = (Map.Entry<String, View>) entries.next();
                View view = (View) entry.getValue();
                PreparedPlan.Rows leaf = PreparedPlan.leaf(session, view.schema);
                leaves.put((String) entry.getKey(), leaf);
                view.made = false;
                makeView((String) entry.getKey(), view.schema, leaf.asDataset(session));
            }
            PreparedPlan prepared = PreparedPlan.of(session, sql, leaves);
            return prepared == null ? UNSUPPORTED : prepared;
        } catch (Exception error) {
            return UNSUPPORTED;
        }
    }

    /** Creates the views in `read` that Spark does not have. */
    private void makeViews(Map<String, View> read) {
        Iterator<Map.Entry<String, View>> entries = read.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<String, View> entry = (Map.Entry<String, View>) entries.next();
            View view = (View) entry.getValue();
            if (view.made) {
                continue;
            }
            ArraySeq<byte[]> rows = ArraySeq$.MODULE$.unsafeWrapArray(view.batches);
            if (bytes(view.batches) > PREPARED_BYTES_MAX) {
                view.batches = null; // Spark has its own copy of the rows
            }
            makeView((String) entry.getKey(), view.schema,
                    (Dataset<Row>) PythonSQLUtils.toDataFrame(rows.iterator(), view.schema, session));
            view.made = true;
        }
    }

    private static long bytes(byte[][] batches) {
        long bytes = 0;
        for (int i = 0; i < batches.length; i++) {
            bytes += batches[i].length;
        }
        return bytes;
    }

    /**
     * Equivalent to createOrReplaceTempView, which runs a command and takes a third of the time of an empty job.
     * Therefore that is used only for the first view of a name and schema; later ones copy the view with other rows.
     */
    private void makeView(String name, String schema, Dataset<Row> rows) {
        SessionCatalog catalog = session.sessionState().catalog();
        String kind = name + '\n' + schema;
        TemporaryViewRelation view = (TemporaryViewRelation) viewTemplates.get(kind);
        if (view != null) {
            scala.Option<LogicalPlan> plan = new scala.Some<LogicalPlan>(rows.queryExecution().analyzed());
            catalog.createTempView(name, view.copy(view.tableMeta(), plan), true);
            return;
        }
        rows.createOrReplaceTempView(name);
        if (viewTemplates.size() >= VIEW_TEMPLATES_MAX) {
            viewTemplates.clear();
        }
        view = (TemporaryViewRelation) catalog.getRawTempView(name).get();
        viewTemplates.put(kind, view.copy(view.tableMeta(), scala.Option$.MODULE$.empty()));
    }

    /** Runs a prepared statement; the rows are computed while they are written. */
    private void answer(PreparedPlan prepared, Map<String, View> read, String group, DataOutputStream out)
            throws IOException {
        Map<String, byte[][]> batches = new HashMap<String, byte[][]>();
        Iterator<Map.Entry<String, View>> entries = read.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<String, View> entry = (Map.Entry<String, View>) entries.next();
            batches.put((String) entry.getKey(), ((View) entry.getValue()).batches);
        }
        prepared.run(group, batches, batchRowsMax, batchBytesMax, out);
    }

    /** Collects the rows and converts them to Arrow in the driver. */
    private void answer(SparkPlan plan, DataOutputStream out) throws IOException {
        InternalRow[] rows = plan.executeCollect(); // runs no job if the plan has been folded to rows
        ArraySeq<InternalRow> sequence = ArraySeq$.MODULE$.unsafeWrapArray(rows);
        PreparedArrow.Output output = new PreparedArrow.Output(plan.schema());
        if (!output.write(sequence.iterator(), batchRowsMax, batchBytesMax, out)) {
            output.writeNone(out);
        }
    }

    /** The tasks convert the rows to Arrow: the driver's heap has space for millions of rows only in that format. */
    private void answerInBatches(Dataset<Row> query, SparkPlan plan, DataOutputStream out) throws IOException {
        byte[][] batches = (byte[][]) query.toArrowBatchRdd(TASK_BATCH_ROWS_MAX, "UTC", true, false).collect();
        byte[] head = PreparedArrow.head(plan.schema());
        if (batches.length == 0) {
            PreparedArrow.writeStream(head, new byte[0], out);
        }
        for (int i = 0; i < batches.length; i++) {
            PreparedArrow.writeStream(head, batches[i], out);
            batches[i] = null;
        }
    }

    /** Whether the plan reads RDDs. Spark does not know their size and uses its maximum as the estimate. */
    private static boolean isLarge(Dataset<Row> query, SparkPlan plan) {
        boolean isBounded = plan instanceof CollectLimitExec || plan instanceof TakeOrderedAndProjectExec;
        return !isBounded && query.queryExecution().optimizedPlan().stats().sizeInBytes().bitLength() > KNOWN_BITS_MAX;
    }

    /**
     * Limits the two thread pools that remove broadcasts and shuffles. Spark starts a thread in them for each task, up
     * to 100 per pool even if others are idle, and keeps it for a minute: 200 threads while views are created and
     * dropped. Tasks of the first pool wait for tasks of the second, which wait for none, so no size causes a deadlock.
     */
    public void boundThreads(SparkContext context, int max) throws ReflectiveOperationException {
        // Accesses fields only: the signatures of SparkEnv's methods contain classes that Spark does not include.
        Object dispatcher = field(field(field(context, "_env"), "rpcEnv"), "dispatcher");
        Iterator<?> endpoints = ((Map<?, ?>) field(dispatcher, "endpointRefs")).keySet().iterator();
        while (endpoints.hasNext()) {
            Object endpoint = endpoints.next();
            String name = endpoint.getClass().getSimpleName();
            if (name.equals("BlockManagerStorageEndpoint")) {
                bound((ThreadPoolExecutor) field(endpoint, "asyncThreadPool"), max);
            } else if (name.equals("BlockManagerMasterEndpoint")) {
                bound((ThreadPoolExecutor) field(endpoint, "askThreadPool"), max);
            }
        }
    }

    private static Object field(Object object, String name) throws ReflectiveOperationException {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static void bound(ThreadPoolExecutor pool, int max) {
        pool.setCorePoolSize(max); // before the maximum, which must not be smaller
        pool.setMaximumPoolSize(max);
    }

    /** Starts the guard that ends a statement when the heap is exhausted. */
    public void guardMemory(SparkContext context) {
        MemoryGuard.start(context);
    }

    /** Starts the guard that ends a statement before the disk is full. */
    public void guardDisk(SparkContext context, long share, long bytesMax) throws ReflectiveOperationException {
        Object files = field(field(field(context, "_env"), "blockManager"), "diskBlockManager"); // see boundThreads
        DiskGuard.start(context, (File[]) field(files, "localDirs"), share, bytesMax);
    }

    /** Cancels a statement: the jobs of its group, and a prepared statement, which is not a Spark job. */
    public void cancel(SparkContext context, String group) {
        RunningStatements.cancelled(group); // first: the statement may fail at once
        context.cancelJobGroupAndFutureJobs(group);
        PreparedPlan.cancel(group);
    }

    /**
     * Serializes an exception: int 1 if Spark is stopping or stopped, else 0;
     * int n, n x (text class, text message, text condition, text SQLSTATE, int m, m x (text key, text value)),
     * outermost first; then text, the stack trace.
     */
    public byte[] describe(Throwable thrown) throws IOException {
        int causes = 0;
        for (Throwable cause = thrown; cause != null && causes < CAUSES_MAX; cause = cause.getCause()) {
            causes++;
        }
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        scala.Option<SparkContext> active = SparkContext$.MODULE$.getActive();
        out.writeInt(active.isEmpty() || ((SparkContext) active.get()).isStopped() ? 1 : 0);
        out.writeInt(causes);
        Throwable cause = thrown;
        for (int i = 0; i < causes; i++) {
            SparkThrowable known = cause instanceof SparkThrowable ? (SparkThrowable) cause : null;
            boolean named = known != null && known.getCondition() != null;
            write(out, cause.getClass().getName());
            write(out, cause.getMessage());
            write(out, named ? known.getCondition() : "");
            write(out, named ? known.getSqlState() : "");
            out.writeInt(named ? known.getMessageParameters().size() : 0);
            if (named) {
                Iterator<Map.Entry<String, String>> entries = known.getMessageParameters().entrySet().iterator();
                while (entries.hasNext()) {
                    Map.Entry<String, String> entry = (Map.Entry<String, String>) entries.next();
                    write(out, (String) entry.getKey());
                    write(out, (String) entry.getValue());
                }
            }
            cause = cause.getCause();
        }
        StringWriter trace = new StringWriter();
        thrown.printStackTrace(new PrintWriter(trace, true));
        String whole = trace.toString();
        write(out, whole.substring(0, Math.min(whole.length(), TRACE_MAX)));
        return bytes.toByteArray();
    }

    private static byte[] block(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }

    private static String text(DataInputStream in) throws IOException {
        return new String(block(in), "UTF-8");
    }

    private static void write(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static void write(DataOutputStream out, String text) throws IOException {
        write(out, (text == null ? "" : text).getBytes("UTF-8"));
    }
}
