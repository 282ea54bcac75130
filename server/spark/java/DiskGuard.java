package tidewire;

import java.io.File;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.status.api.v1.StageData;

/**
 * Ends the statement that has written most temporary files before they fill the disk.
 *
 * Commits use the same disk as a rule: those of all sessions would fail. Spark deletes the files of a statement that has
 * ended when the garbage collector finds that they are not used. This class is compiled in the same way as SparkBridge.
 */
@SuppressWarnings("cast")
public class DiskGuard implements Runnable {
    private static final long PERIOD_MS = 250;
    private static final long COLLECTION_NS = 10L * 1000 * 1000 * 1000; // between two collections, at least
    private static final long WRITTEN_MIN = 16L << 20; // statements that have written less are not the cause

    private SparkContext context;
    private File[] directories;
    private long share;
    private long bytesMax;
    private long collected = System.nanoTime() - COLLECTION_NS; // when, in nanoseconds

    /**
     * Starts the guard's thread. It keeps 1/`share` of the filesystem of each directory free, at most `bytesMax` bytes.
     * `directories`: where Spark writes temporary files.
     */
    public static void start(SparkContext context, File[] directories, long share, long bytesMax) {
        DiskGuard guard = new DiskGuard();
        guard.context = context;
        guard.directories = directories;
        guard.share = share;
        guard.bytesMax = bytesMax;
        Thread thread = new Thread(guard, "tidewire-disk-guard");
        thread.setDaemon(true);
        thread.start();
    }

    public void run() {
        while (!context.isStopped()) {
            try {
                Thread.sleep(PERIOD_MS);
                for (int i = 0; i < directories.length; i++) {
                    check(directories[i]);
                }
            } catch (InterruptedException stopped) {
                return;
            } catch (OutOfMemoryError full) {
                collected = System.nanoTime(); // the heap is the memory guard's matter
            }
        }
    }

    private void check(File directory) {
        long total = directory.getTotalSpace(); // 0 if it has been deleted
        long free = directory.getUsableSpace();
        long reserved = Math.min(total / share, bytesMax);
        if (total == 0 || free >= 2 * reserved) {
            return;
        }
        if (System.nanoTime() - collected >= COLLECTION_NS) {
            collected = System.nanoTime();
            System.gc();
            return;
        }
        if (free >= reserved || RunningStatements.isCancelling()) {
            return; // the space that the cancelled statement frees may be enough
        }
        String most = null;
        long mostWritten = WRITTEN_MIN;
        List<String> groups = RunningStatements.groups();
        for (int i = 0; i < groups.size(); i++) {
            String group = (String) groups.get(i);
            long written = written(group);
            if (written >= mostWritten) {
                most = group;
                mostWritten = written;
            }
        }
        if (most != null) {
            RunningStatements.cancel(context, most, new IOException("No space left on device"));
            collected = System.nanoTime() - COLLECTION_NS; // its files can be deleted
        }
    }

    /** Returns the number of bytes that a statement has written to temporary files, as of the last heartbeat. */
    private long written(String group) {
        long bytes = 0;
        int[] jobs = context.statusTracker().getJobIdsForGroup(group);
        for (int i = 0; i < jobs.length; i++) {
            Iterator<?> infos = scala.jdk.javaapi.CollectionConverters.asJava(
                            context.statusTracker().getJobInfo(jobs[i]).iterator());
            while (infos.hasNext()) {
                int[] stages = ((SparkJobInfo) infos.next()).stageIds();
                for (int j = 0; j < stages.length; j++) {
                    bytes += writtenBy(stages[j]);
                }
            }
        }
        return bytes;
    }

    private long writtenBy(int stage) {
        try {
            StageData data = context.statusStore().lastStageAttempt(stage);
            return data.diskBytesSpilled() + data.shuffleWriteBytes();
        } catch (NoSuchElementException notStarted) {
            return 0;
        }
    }
}
