package tidewire;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryUsage;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.SparkContext;

/**
 * Ends the statement that has run longest when the heap is exhausted.
 *
 * Before an allocation fails, G1 collects a full heap again and again, for minutes. All statements wait meanwhile, and
 * any of them may be the one whose allocation fails. If the cancelled statement does not end, the JVM exits with the
 * code of a failed allocation. This class is compiled in the same way as SparkBridge.
 */
@SuppressWarnings("cast")
public class MemoryGuard implements Runnable {
    private static final long PERIOD_MS = 1000;
    private static final int PERIODS = 5; // over which the time of collections is measured
    private static final double COLLECTING_MAX = 0.5; // of the time
    private static final double USED_MAX = 0.9; // of the heap
    private static final long END_NS = 30L * 1000 * 1000 * 1000; // from the cancellation of a statement to its end, at most
    private static final int EXIT_OUT_OF_MEMORY = 52; // as Spark's handler of an OutOfMemoryError

    private SparkContext context;

    /** Starts the guard's thread. */
    public static void start(SparkContext context) {
        MemoryGuard guard = new MemoryGuard();
        guard.context = context;
        Thread thread = new Thread(guard, "tidewire-memory-guard");
        thread.setDaemon(true);
        thread.start();
    }

    public void run() {
        ArrayDeque<long[]> samples = new ArrayDeque<long[]>(); // {time in ns, total time of collections in ms}
        while (!context.isStopped()) {
            try {
                Thread.sleep(PERIOD_MS);
                sample(samples);
            } catch (InterruptedException stopped) {
                return;
            } catch (OutOfMemoryError full) {
                samples.clear(); // the guard's own allocation failed
            }
        }
    }

    private void sample(ArrayDeque<long[]> samples) {
        long[] now = new long[] {System.nanoTime(), collectionMs()};
        samples.add(now);
        if (samples.size() <= PERIODS) {
            return;
        }
        long[] before = (long[]) samples.remove();
        double collecting = (now[1] - before[1]) * 1e6 / (now[0] - before[0]);
        if (collecting > COLLECTING_MAX && used() > USED_MAX) {
            samples.clear();
            cancelOldest();
        }
    }

    private void cancelOldest() {
        long cancelledFor = RunningStatements.cancelledFor();
        if (cancelledFor > END_NS) {
            Runtime.getRuntime().halt(EXIT_OUT_OF_MEMORY);
        }
        List<String> groups = RunningStatements.groups();
        if (cancelledFor >= 0 || groups.isEmpty()) {
            return; // the memory that the cancelled statement frees may be enough
        }
        RunningStatements.cancel(
                context, (String) groups.get(0), new OutOfMemoryError("GC overhead limit exceeded"));
    }

    /** Returns the time that pauses for collections have taken since the start, in milliseconds. */
    private static long collectionMs() {
        long ms = 0;
        Iterator<?> beans = ManagementFactory.getGarbageCollectorMXBeans().iterator();
        while (beans.hasNext()) {
            GarbageCollectorMXBean bean = (GarbageCollectorMXBean) beans.next();
            if (bean.getName().indexOf("Concurrent") < 0) {
                ms += bean.getCollectionTime();
            }
        }
        return ms;
    }

    /** Returns the used part of the pool of old objects, from 0 to 1. */
    private static double used() {
        double used = 0;
        Iterator<?> beans = ManagementFactory.getMemoryPoolMXBeans().iterator();
        while (beans.hasNext()) {
            MemoryPoolMXBean bean = (MemoryPoolMXBean) beans.next();
            if (bean.getName().indexOf("Old Gen") >= 0) {
                MemoryUsage usage = bean.getUsage();
                used = usage.getUsed() / (double) usage.getMax();
            }
        }
        return used;
    }
}
