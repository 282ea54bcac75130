package tidewire;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;

/**
 * The job groups of the statements that run in this JVM, and the guards' cancellations of them.
 *
 * Janino ignores type arguments, so this file has casts that are redundant for javac.
 */
@SuppressWarnings("cast")
public class RunningStatements {
    private static final Map<String, Statement> running =
            new LinkedHashMap<String, Statement>(); // by job group, the oldest first

    /** `reason`: why a guard has cancelled the statement, or null. `cancelled`: when, in nanoseconds. */
    private static class Statement {
        Throwable reason;
        long cancelled;
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

    /** Returns the running job groups, the oldest first. */
    public static List<String> groups() {
        synchronized (running) {
            return new ArrayList<String>(running.keySet());
        }
    }

    /** Returns why a guard has cancelled a running statement; null if none has. */
    public static Throwable reason(String group) {
        synchronized (running) {
            Statement statement = (Statement) running.get(group);
            return statement == null ? null : statement.reason;
        }
    }

    /** Returns for how many nanoseconds a cancelled statement has continued to run, at most; -1 if none does. */
    public static long cancelledFor() {
        long longest = -1;
        synchronized (running) {
            Iterator<Statement> statements = running.values().iterator();
            while (statements.hasNext()) {
                Statement statement = (Statement) statements.next();
                if (statement.reason != null) {
                    longest = Math.max(longest, System.nanoTime() - statement.cancelled);
                }
            }
        }
        return longest;
    }

    /** Cancels a statement, which fails with `reason`. Does nothing if it has ended. */
    public static void cancel(SparkContext context, String group, Throwable reason) {
        synchronized (running) {
            Statement statement = (Statement) running.get(group);
            if (statement == null) {
                return;
            }
            statement.reason = reason;
            statement.cancelled = System.nanoTime();
        }
        context.cancelJobGroupAndFutureJobs(group);
        PreparedPlan.cancel(group);
    }
}
