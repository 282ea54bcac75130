package tidewire;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.metrics.source.CodegenMetrics$;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeAndComment;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$;
import org.apache.spark.util.NonFateSharingCache;
import scala.Tuple3;

/**
 * Limits the memory of Spark's cache of the classes that it generates for statements. Their source code is in it, too.
 *
 * Spark limits their number only. An application with hundreds of statements needs hundreds of small classes, which
 * otherwise are compiled again at each execution. A single statement with thousands of expressions has megabytes of
 * source code. This class is compiled in the same way as SparkBridge.
 */
@SuppressWarnings("cast")
public class CodeCache {
    private static final long LENGTH_MAX = Runtime.getRuntime().maxMemory() >> 5; // of the source code, in characters

    private static final Map<?, ?> classes = classes(); // by their source code
    private static long compiled = 0; // number of compilations before the last call of trim()

    /** Removes the classes with the longest source code while that of all classes is longer than LENGTH_MAX. */
    public static synchronized void trim() {
        long count = CodegenMetrics$.MODULE$.METRIC_COMPILATION_TIME().getCount();
        if (count == compiled) {
            return;
        }
        compiled = count;
        List<Object> keys = new ArrayList<Object>(classes.keySet());
        long length = 0;
        for (int i = 0; i < keys.size(); i++) {
            length += length(keys.get(i));
        }
        if (length <= LENGTH_MAX) {
            return;
        }
        Collections.sort(keys, new Comparator<Object>() {
            public int compare(Object one, Object other) {
                return Integer.compare(length(other), length(one));
            }
        });
        Iterator<Object> longest = keys.iterator();
        while (length > LENGTH_MAX) {
            Object key = longest.next();
            length -= length(key);
            classes.remove(key);
        }
    }

    private static Map<?, ?> classes() {
        try {
            Field field = CodeGenerator$.class.getDeclaredField("cache");
            field.setAccessible(true);
            return ((NonFateSharingCache<?, ?>) field.get(null)).cache().asMap();
        } catch (ReflectiveOperationException changed) {
            throw new IllegalStateException(changed);
        }
    }

    private static int length(Object key) {
        return ((CodeAndComment) ((Tuple3<?, ?, ?>) key)._3()).body().length();
    }
}
