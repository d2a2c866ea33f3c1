package rmqpy.spark.remoting;

/** Codes of requests and responses. */
public final class Codes {
    public static final int PULL_MESSAGE = 11;
    public static final int UPDATE_CONSUMER_OFFSET = 15;
    public static final int SEARCH_OFFSET_BY_TIMESTAMP = 29;
    public static final int GET_MAX_OFFSET = 30;
    public static final int GET_MIN_OFFSET = 31;
    public static final int GET_ROUTEINFO_BY_TOPIC = 105;
    public static final int SEND_MESSAGE_V2 = 310;
    public static final int SEND_BATCH_MESSAGE = 320;

    public static final int SUCCESS = 0;
    public static final int SYSTEM_ERROR = 1;
    public static final int SYSTEM_BUSY = 2;
    public static final int FLUSH_DISK_TIMEOUT = 10;
    public static final int SLAVE_NOT_AVAILABLE = 11;
    public static final int FLUSH_SLAVE_TIMEOUT = 12;
    public static final int SERVICE_NOT_AVAILABLE = 14;
    public static final int NO_PERMISSION = 16;
    public static final int TOPIC_NOT_EXIST = 17;
    public static final int PULL_NOT_FOUND = 19;
    public static final int PULL_RETRY_IMMEDIATELY = 20;
    public static final int PULL_OFFSET_MOVED = 21;
    public static final int INVALID_PARAMETER = 29;
    public static final int NOT_IN_CURRENT_UNIT = 205;
    public static final int GO_AWAY = 1500;

    private Codes() {}
}
