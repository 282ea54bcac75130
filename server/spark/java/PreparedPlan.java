package tidewire;

import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.InterruptibleIterator;
import org.apache.spark.Partition;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.Dependency;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics$;
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeMap$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.DataType$;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * A prepared statement over small tables: Spark plans it once, and its operators then run over new rows each time, in
 * the calling thread.
 *
 * For a small statement, processing the rows is the smallest part. Parsing, analysis, optimization, planning,
 * generation of the code's text, and submission of a job (whose closures are cleaned and serialized) take twenty times
 * as long, and are the same each time. Here each table is a leaf (`Rows`) that returns the rows it was given last, so
 * the optimizer cannot fold it, and that has one partition, so there is no exchange. The plan yields Spark's RDDs.
 * Their iterators, which a task would pull, are pulled here with a task context, which provides memory, listeners and
 * the end of the task.
 *
 * Supports plans whose operators need nothing else: no exchange, no broadcast, no subquery (`OPERATORS`). A statement
 * with Python functions is supported if the executors are in this JVM (the Python workers belong to this JVM) and the
 * result has one partition. Spark gives each task a copy of the plan's expressions; here they are reused. This is safe
 * because one thread uses them, they are deterministic, and they are initialized for each partition.
 *
 * Janino ignores type arguments, so this file has casts that are redundant for javac.
 */
@SuppressWarnings("cast")
public class PreparedPlan {
    private static final Set<String> OPERATORS = new HashSet<String>(Arrays.asList(new String[] {
        "RDDScanExec", "LocalTableScanExec", "ProjectExec", "FilterExec", "CoalesceExec", "UnionExec", "ExpandExec",
        "GenerateExec", "SortExec", "HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec", "WindowExec",
        "WindowGroupLimitExec", "ShuffledHashJoinExec", "SortMergeJoinExec", "CartesianProductExec", "LocalLimitExec",
        "GlobalLimitExec", "CollectLimitExec", "TakeOrderedAndProjectExec", "WholeStageCodegenExec", "InputAdapter",
    }));
    private static final String PYTHON = "ArrowEvalPythonExec";
    private static final int CANCELLED_MAX = 1000;
    private static final String BROADCAST = "spark.sql.autoBroadcastJoinThreshold";
    private static final long SMALL = 1 << 16; // bytes: the size of a table in the optimizer's statistics
    private static final AtomicLong LAST_TASK = new AtomicLong(-1); // these task ids count down, Spark's count up

    private static final Map<String, TaskContextImpl> running = new HashMap<String, TaskContextImpl>(); // by job group
    private static final Map<String, String> cancelled = new LinkedHashMap<String, String>(); // the last job groups
    private final Map<String, Rows> leaves; // by view name
    private final RDD<InternalRow> rows;
    private final PreparedArrow.Output output;
    private final MemoryManager memoryOfTasks;

    private PreparedPlan(SparkSession session, Map<String, Rows> leaves, RDD<InternalRow> rows, StructType schema)
            throws IOException {
        this.memoryOfTasks = memoryManager(session.sparkContext());
        this.leaves = leaves;
        this.rows = rows;
        this.output = new PreparedArrow.Output(schema);
    }

    /** A table as an RDD of one partition. It returns the batches that were set last. */
    public static class Rows extends RDD<InternalRow> {
        private static final long serialVersionUID = 1;
        private final transient StructType schema;
        private transient byte[][] batches;
        private transient PreparedArrow.Input input;

        public Rows(SparkContext context, StructType schema) {
            super(context, PreparedPlan.<Dependency<?>>none(), ClassTag$.MODULE$.apply(InternalRow.class));
            this.schema = schema;
        }

        public Partition[] getPartitions() {
            return new Partition[] {new org.apache.spark.rdd.ParallelCollectionPartition<InternalRow>(
                    id(), 0, PreparedPlan.<InternalRow>none(), ClassTag$.MODULE$.apply(InternalRow.class))};
        }

        public scala.collection.Iterator<InternalRow> compute(Partition partition, TaskContext context) {
            scala.collection.Iterator<InternalRow> rows;
            if (batches.length == 1) {
                if (input == null) {
                    input = new PreparedArrow.Input(schema);
                }
                rows = (scala.collection.Iterator<InternalRow>) CollectionConverters.asScala(input.rows(batches[0]));
            } else {
                ArraySeq<byte[]> current = ArraySeq$.MODULE$.unsafeWrapArray(batches);
                rows = ArrowConverters$.MODULE$.fromBatchIterator(
                        current.iterator(), schema, "UTC", false, false, context);
            }
            return new InterruptibleIterator<InternalRow>(context, rows);
        }

        void setBatches(byte[][] batches) {
            this.batches = batches;
        }

        /** Frees the memory of the batches. */
        void release() {
            batches = null;
            if (input != null) {
                input.release();
            }
        }

        /** The table as a Dataset, to create a view from. */
        @SuppressWarnings("unchecked") // Java cannot express that Scala's Seq is covariant
        public Dataset<Row> asDataset(SparkSession session) {
            scala.Option<Statistics> size = new scala.Some<Statistics>(new Statistics(
                    scala.math.BigInt$.MODULE$.apply(SMALL), scala.Option$.MODULE$.empty(),
                    AttributeMap$.MODULE$.empty(), false));
            Seq<Attribute> attributes = (Seq<Attribute>) (Seq<?>) DataTypeUtils$.MODULE$.toAttributes(schema);
            return Dataset$.MODULE$.ofRows(session, new LogicalRDD(
                    attributes, this, SinglePartition$.MODULE$, PreparedPlan.<SortOrder>none(), false,
                    scala.Option$.MODULE$.empty(), session, size, scala.Option$.MODULE$.empty(), false));
        }
    }

    @SuppressWarnings("unchecked") // Java cannot express that Nil is a sequence of any type
    private static <T> Seq<T> none() {
        return (Seq<T>) (Seq<?>) Nil$.MODULE$;
    }

    /** Returns a leaf for a table of this schema (Spark's StructType as JSON). */
    public static Rows leaf(SparkSession session, String schema) {
        return new Rows(session.sparkContext(), (StructType) DataType$.MODULE$.fromJson(schema));
    }

    /** Plans a statement over `leaves` (by view name), whose views exist. Null if the plan is not supported. */
    public static PreparedPlan of(SparkSession session, String sql, Map<String, Rows> leaves) throws IOException {
        String threshold = session.conf().get(BROADCAST);
        session.conf().set(BROADCAST, "-1");
        try {
            Dataset<Row> query = (Dataset<Row>) session.sql(sql);
            LogicalPlan analyzed = query.queryExecution().analyzed();
            if (!analyzed.deterministic() || analyzed.containsPattern(TreePattern$.MODULE$.CURRENT_LIKE())) {
                return null;
            }
            SparkPlan plan = query.queryExecution().executedPlan();
            boolean local = session.sparkContext().isLocal();
            if (!isSimple(plan, local)) {
                return null;
            }
            RDD<InternalRow> rows = plan.execute();
            boolean isParallelPython = rows.getNumPartitions() > 1 && usesPython(plan);
            return isParallelPython || shuffles(rows) ? null : new PreparedPlan(session, leaves, rows, plan.schema());
        } finally {
            session.conf().set(BROADCAST, threshold);
        }
    }

    private static boolean isSimple(SparkPlan plan, boolean local) {
        String name = plan.getClass().getSimpleName();
        if (!(OPERATORS.contains(name) || local && name.equals(PYTHON)) || !plan.subqueries().isEmpty()) {
            return false;
        }
        scala.collection.Iterator<SparkPlan> children = plan.children().iterator();
        while (children.hasNext()) {
            if (!isSimple((SparkPlan) children.next(), local)) {
                return false;
            }
        }
        return true;
    }

    private static boolean usesPython(SparkPlan plan) {
        if (plan.getClass().getSimpleName().equals(PYTHON)) {
            return true;
        }
        scala.collection.Iterator<SparkPlan> children = plan.children().iterator();
        while (children.hasNext()) {
            if (usesPython((SparkPlan) children.next())) {
                return true;
            }
        }
        return false;
    }

    private static boolean shuffles(RDD<?> rows) {
        scala.collection.Iterator<Dependency<?>> dependencies = rows.dependencies().iterator();
        while (dependencies.hasNext()) {
            Dependency<?> dependency = (Dependency<?>) dependencies.next();
            if (dependency instanceof ShuffleDependency<?, ?, ?> || shuffles(dependency.rdd())) {
                return true;
            }
        }
        return false;
    }

    /** SparkEnv.memoryManager(), by a method handle: reflection over all methods needs classes that Spark omits. */
    private static MemoryManager memoryManager(SparkContext context) {
        try {
            return (MemoryManager) MethodHandles.publicLookup()
                    .findVirtual(SparkEnv.class, "memoryManager", MethodType.methodType(MemoryManager.class))
                    .invokeWithArguments(new Object[] {context.env()});
        } catch (Throwable impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /**
     * Computes the rows over record batches (by view name), and writes them as blocks, each a complete Arrow stream
     * of at most `rowsMax` rows and about `bytesMax` bytes.
     */
    public void run(String group, Map<String, byte[][]> batches, long rowsMax, long bytesMax, DataOutputStream out)
            throws IOException {
        Iterator<Map.Entry<String, Rows>> entries = leaves.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<String, Rows> entry = (Map.Entry<String, Rows>) entries.next();
            ((Rows) entry.getValue()).setBatches((byte[][]) batches.get(entry.getKey()));
        }
        try {
            run(group, rowsMax, bytesMax, out);
        } finally {
            Iterator<Rows> used = leaves.values().iterator();
            while (used.hasNext()) {
                ((Rows) used.next()).release();
            }
        }
    }

    private void run(String group, long rowsMax, long bytesMax, DataOutputStream out) throws IOException {
        Partition[] partitions = rows.partitions();
        boolean hasRows = false;
        for (int i = 0; i < partitions.length; i++) {
            long task = LAST_TASK.decrementAndGet();
            TaskMemoryManager memory = new TaskMemoryManager(memoryOfTasks, task);
            TaskContextImpl context = new TaskContextImpl(
                    0, 0, i, task, 0, partitions.length, memory, new Properties(), null,
                    TaskMetrics$.MODULE$.empty(), TaskContextImpl.$lessinit$greater$default$11(),
                    TaskContextImpl.$lessinit$greater$default$12());
            TaskContext$.MODULE$.setTaskContext(context);
            begin(group, context);
            Throwable failure = null;
            try {
                hasRows |= output.write(
                        new InterruptibleIterator<InternalRow>(context, rows.iterator(partitions[i], context)),
                        rowsMax, bytesMax, out);
            } catch (Throwable thrown) {
                failure = thrown;
                context.markTaskFailed(thrown);
                throw thrown;
            } finally {
                end(group);
                try {
                    context.markTaskCompleted(scala.Option$.MODULE$.apply(failure));
                } finally {
                    memory.cleanUpAllAllocatedMemory();
                    TaskContext$.MODULE$.unset();
                }
            }
        }
        if (!hasRows) {
            output.writeNone(out);
        }
    }

    private static void begin(String group, TaskContextImpl context) {
        synchronized (running) {
            running.put(group, context);
            if (cancelled.containsKey(group)) {
                context.markInterrupted("cancelled");
            }
        }
    }

    private static void end(String group) {
        synchronized (running) {
            running.remove(group);
        }
    }

    /** Cancels the running and the future work of a job group. */
    public static void cancel(String group) {
        synchronized (running) {
            cancelled.put(group, group);
            if (cancelled.size() > CANCELLED_MAX) {
                cancelled.remove(cancelled.keySet().iterator().next());
            }
            TaskContextImpl context = (TaskContextImpl) running.get(group);
            if (context != null) {
                context.markInterrupted("cancelled");
            }
        }
    }
}
