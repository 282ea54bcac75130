package tidewire;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.SparkContext;

/**
 * Ends the statement that has run longest when the heap is exhausted.
 *
 * Before an allocation fails, G1 collects a full heap again and again, for minutes. All statements wait meanwhile, and
 * any of them may be the one whose allocation fails. The JVM exits with the code of a failed allocation if a cancelled
 * statement does not end, or if the heap remains exhausted. This class is compiled in the same way as SparkBridge.
 *
 * The measurement allocates nothing: in an exhausted heap the allocations of this thread fail, too.
 */
@SuppressWarnings("cast")
public class MemoryGuard implements Runnable {
    private static final long PERIOD_MS = 1000;
    private static final long WINDOW_NS = 5L * 1000 * 1000 * 1000; // over which the time of collections is measured
    private static final double COLLECTING_MAX = 0.5; // of the time
    private static final double USED_MAX = 0.9; // of the heap
    private static final long END_NS = 30L * 1000 * 1000 * 1000; // to the end of a cancelled statement, and of the exhaustion
    private static final int EXIT_OUT_OF_MEMORY = 52; // as Spark's handler of an OutOfMemoryError

    private SparkContext context;
    private GarbageCollectorMXBean[] collectors; // those that pause the JVM
    private long begun; // of the window, in ns
    private long collectedMs; // until then
    private boolean isExhausted; // in the last window
    private long exhausted; // since when, in ns

    /** Starts the guard's thread. */
    public static void start(SparkContext context) {
        MemoryGuard guard = new MemoryGuard();
        guard.context = context;
        guard.collectors = pausingCollectors();
        guard.begun = System.nanoTime();
        guard.collectedMs = guard.collectionMs();
        Thread thread = new Thread(guard, "tidewire-memory-guard");
        thread.setDaemon(true);
        thread.start();
    }

    private static GarbageCollectorMXBean[] pausingCollectors() {
        List<GarbageCollectorMXBean> pausing = new ArrayList<GarbageCollectorMXBean>();
        Iterator<?> beans = ManagementFactory.getGarbageCollectorMXBeans().iterator();
        while (beans.hasNext()) {
            GarbageCollectorMXBean bean = (GarbageCollectorMXBean) beans.next();
            if (bean.getName().indexOf("Concurrent") < 0) {
                pausing.add(bean);
            }
        }
        return (GarbageCollectorMXBean[]) pausing.toArray(new GarbageCollectorMXBean[pausing.size()]);
    }

    public void run() {
        while (!context.isStopped()) {
            try {
                Thread.sleep(PERIOD_MS);
                check();
            } catch (InterruptedException stopped) {
                return;
            } catch (OutOfMemoryError full) {
                continue; // nothing could be cancelled; the next window decides
            }
        }
    }

    private void check() {
        long now = System.nanoTime();
        if (now - begun < WINDOW_NS) {
            return;
        }
        long ms = collectionMs();
        boolean isFull = (ms - collectedMs) * 1e6 / (now - begun) > COLLECTING_MAX && used() > USED_MAX;
        if (isFull && !isExhausted) {
            exhausted = begun;
        }
        isExhausted = isFull;
        begun = now;
        collectedMs = ms;
        if (isFull) {
            if (now - exhausted > END_NS || RunningStatements.cancelledFor() > END_NS) {
                Runtime.getRuntime().halt(EXIT_OUT_OF_MEMORY);
            }
            cancelOldest();
        }
    }

    private void cancelOldest() {
        List<String> groups = RunningStatements.groups();
        if (RunningStatements.cancelledFor() >= 0 || groups.isEmpty()) {
            return; // the memory that the cancelled statement frees may be enough
        }
        RunningStatements.cancel(
                context, (String) groups.get(0), new OutOfMemoryError("GC overhead limit exceeded"));
    }

    /** Returns the time that pauses for collections have taken since the start, in milliseconds. */
    private long collectionMs() {
        long ms = 0;
        for (int i = 0; i < collectors.length; i++) {
            ms += collectors[i].getCollectionTime();
        }
        return ms;
    }

    /** Returns the used part of the heap, from 0 to 1. */
    private static double used() {
        Runtime runtime = Runtime.getRuntime();
        return (runtime.totalMemory() - runtime.freeMemory()) / (double) runtime.maxMemory();
    }
}
