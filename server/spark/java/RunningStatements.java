package tidewire;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.SparkContext$;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;

/**
 * The job groups of the statements that run in this JVM, and their cancellations by clients and by the guards.
 *
 * Janino ignores type arguments, so this file has casts that are redundant for javac.
 */
@SuppressWarnings("cast")
public class RunningStatements {
    private static final long TASKS_END_NS = 30L * 1000 * 1000 * 1000; // from a cancellation to the end of the last task
    private static final long POLL_NS = 10L * 1000 * 1000;
    private static final Map<String, Statement> running =
            new LinkedHashMap<String, Statement>(); // by job group, the oldest first

    /**
     * `cancelled`: when, in nanoseconds. `reason`: why a guard has cancelled the statement; null if its client has.
     * `hasOnlyTasks`: its thread waits for the end of its tasks.
     */
    private static class Statement {
        boolean hasOnlyTasks;
        boolean isCancelled;
        long cancelled;
        Throwable reason;

        void cancel(Throwable reason) {
            if (!isCancelled) {
                isCancelled = true;
                cancelled = System.nanoTime();
            }
            this.reason = reason;
        }
    }

    private RunningStatements() {}

    /** Adds the job group of a statement that starts. */
    public static void begin(String group) {
        synchronized (running) {
            running.put(group, new Statement());
        }
    }

    /** Removes the job group of a statement that has ended. */
    public static void end(String group) {
        synchronized (running) {
            running.remove(group);
        }
    }

    /** Returns the job groups that can be cancelled, the oldest first: not those of which only tasks are left. */
    public static List<String> groups() {
        List<String> groups = new ArrayList<String>();
        synchronized (running) {
            Iterator<Map.Entry<String, Statement>> entries = running.entrySet().iterator();
            while (entries.hasNext()) {
                Map.Entry<String, Statement> entry = (Map.Entry<String, Statement>) entries.next();
                if (!((Statement) entry.getValue()).hasOnlyTasks) {
                    groups.add((String) entry.getKey());
                }
            }
        }
        return groups;
    }

    /** Returns why a guard has cancelled a running statement; null if none has. */
    public static Throwable reason(String group) {
        synchronized (running) {
            Statement statement = (Statement) running.get(group);
            return statement == null ? null : statement.reason;
        }
    }

    /** Returns for how many nanoseconds a cancelled statement or its tasks have continued to run, at most; -1: none does. */
    public static long cancelledFor() {
        long longest = -1;
        synchronized (running) {
            Iterator<Statement> statements = running.values().iterator();
            while (statements.hasNext()) {
                Statement statement = (Statement) statements.next();
                if (statement.isCancelled) {
                    longest = Math.max(longest, System.nanoTime() - statement.cancelled);
                }
            }
        }
        return longest;
    }

    /** Returns whether a guard has cancelled a statement that has not noticed it yet. */
    public static boolean isCancelling() {
        synchronized (running) {
            Iterator<Statement> statements = running.values().iterator();
            while (statements.hasNext()) {
                Statement statement = (Statement) statements.next();
                if (statement.reason != null && !statement.hasOnlyTasks) {
                    return true;
                }
            }
        }
        return false;
    }

    /** Records that the client has cancelled a statement. Does nothing if it has ended. */
    public static void cancelled(String group) {
        synchronized (running) {
            Statement statement = (Statement) running.get(group);
            if (statement != null) {
                statement.cancel(null);
            }
        }
    }

    /**
     * Waits until no task of a cancelled statement runs, at most TASKS_END_NS. Does not wait for one that has failed
     * otherwise, whose client awaits the error.
     *
     * Spark ends a job when it is cancelled. Its tasks continue, with their memory, until they notice it: a task that
     * builds an array of millions of values does so at the end.
     */
    public static void awaitTasks(SparkContext context, String group) {
        synchronized (running) {
            ((Statement) running.get(group)).hasOnlyTasks = true;
        }
        while (isCancelledRecently(group) && hasTasks(context, group)) {
            LockSupport.parkNanos(POLL_NS);
        }
    }

    private static boolean isCancelledRecently(String group) {
        synchronized (running) {
            Statement statement = (Statement) running.get(group);
            return statement.isCancelled && System.nanoTime() - statement.cancelled < TASKS_END_NS;
        }
    }

    private static boolean hasTasks(SparkContext context, String group) {
        TaskSchedulerImpl scheduler = (TaskSchedulerImpl) context.taskScheduler();
        if (scheduler == null) {
            return false; // SparkContext.stop has set it to null
        }
        Iterator<TaskSetManager> tasks = scheduler.taskIdToTaskSetManager().values().iterator();
        while (tasks.hasNext()) {
            Properties properties = ((TaskSetManager) tasks.next()).taskSet().properties();
            if (group.equals(properties.getProperty(SparkContext$.MODULE$.SPARK_JOB_GROUP_ID()))) {
                return true;
            }
        }
        return false;
    }

    /** Cancels a statement, which fails with `reason`. Does nothing if it has ended. */
    public static void cancel(SparkContext context, String group, Throwable reason) {
        synchronized (running) {
            Statement statement = (Statement) running.get(group);
            if (statement == null) {
                return;
            }
            statement.cancel(reason);
        }
        context.cancelJobGroupAndFutureJobs(group);
        PreparedPlan.cancel(group);
    }
}
