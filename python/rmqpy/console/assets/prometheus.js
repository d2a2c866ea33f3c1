// Prometheus: the values of a chart page over longer times than brokers remember.

const RANGE = "1w";
// The kind of a page → its queries, given a label in the notation of Prometheus.
const QUERIES = {
  topics: (name) => [rate("rocketmq_messages_in_total", `topic=${name}`, "topic")],
  groups: (name) => [
    `sum by (topic) (rocketmq_consumer_lag_messages{consumer_group=${name}})`,
    rate("rocketmq_messages_out_total", `consumer_group=${name}`, "topic"),
    rate("rocketmq_send_to_dlq_messages_total", `consumer_group=${name}`, "topic"),
  ],
  brokers: (name) => [
    rate("rmqpy_puts_total", `node_id=${name}`, "node_id"),
    rate("rmqpy_got_messages_total", `node_id=${name}`, "node_id"),
    `sum(rocketmq_consumer_lag_messages{node_id=${name}})`,
    `rmqpy_disk_free_bytes{node_id=${name}}`,
    `histogram_quantile(0.99, ${rate("rocketmq_rpc_latency_bucket", `node_id=${name},request_code=~"SEND_.*"`, "le")})`,
  ],
};

const rate = (metric, labels, by) => `sum by (${by}) (rate(${metric}{${labels}}[5m]))`;

/** The address of the graphs of a topic, a group or a broker. */
export function graphs(base, kind, name) {
  const given = new URLSearchParams();
  QUERIES[kind](JSON.stringify(name)).forEach((expression, at) => {
    given.set(`g${at}.expr`, expression);
    given.set(`g${at}.tab`, "0");
    given.set(`g${at}.range_input`, RANGE);
  });
  return `${base.replace(/\/+$/, "")}/graph?${given}`;
}
