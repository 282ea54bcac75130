package tidewire;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What is known about the statements that the sessions have executed, for most of them a prepared plan. The least
 * recently used ones are removed.
 *
 * A plan takes 150 to 300 bytes of the heap for each character of the statement and of its tables' schemas. The total
 * length of the keys, which contain these, thus limits the plans to less than a third of the heap, whatever the
 * statements are. This class is compiled in the same way as SparkBridge.
 */
@SuppressWarnings("cast")
public class StatementCache {
    private static final int STATEMENTS_MAX = 4000;
    private static final long LENGTH_MAX = Runtime.getRuntime().maxMemory() >> 10;

    private static final Map<String, Object> known = new LinkedHashMap<String, Object>(16, 0.75f, true);
    private static long length = 0; // of the keys, in characters

    /** Returns what is known about a statement of a session; null if nothing is. */
    public static synchronized Object get(String session, String statement) {
        return known.get(key(session, statement));
    }

    public static synchronized void put(String session, String statement, Object value) {
        String key = key(session, statement);
        if (known.put(key, value) == null) {
            length += key.length();
        }
        Iterator<String> oldest = known.keySet().iterator();
        while (length > LENGTH_MAX || known.size() > STATEMENTS_MAX) {
            length -= ((String) oldest.next()).length();
            oldest.remove();
        }
    }

    /** Removes the statements of a session. */
    public static synchronized void remove(String session) {
        Iterator<String> keys = known.keySet().iterator();
        while (keys.hasNext()) {
            String key = (String) keys.next();
            if (key.startsWith(key(session, ""))) {
                length -= key.length();
                keys.remove();
            }
        }
    }

    private static String key(String session, String statement) {
        return session + '\n' + statement;
    }
}
