//! Load report: the measurements as JSON and as numbers.

use serde_json::{Value, json};

use super::plan::Plan;
use super::statistics::LoadStatistics;
use super::usage::Usage;

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)];

/// The measurements of a load.
#[derive(Clone, PartialEq, Debug)]
pub struct Report(Value);

impl Report {
    pub(super) fn new(plan: &Plan, statistics: &LoadStatistics, before: &Usage, after: &Usage) -> Self {
        let interval_s = statistics.interval_s();
        let messages_per_s = if interval_s > 0.0 { statistics.messages as f64 / interval_s } else { 0.0 };
        let refused: Vec<Value> = statistics
            .refused
            .iter()
            .map(|(code, refusals)| json!({"code": code, "count": refusals.count, "remark": refusals.remark}))
            .collect();
        Self(json!({
            "interval_s": interval_s,
            "messages": statistics.messages,
            "messages_per_s": messages_per_s,
            "bytes": statistics.bytes,
            "messages_total": statistics.messages_total,
            "requests_total": statistics.requests_total,
            "empty_pulls": statistics.empty,
            "refused": refused,
            "unanswered": statistics.unanswered,
            "schedule": plan.rate.map(|rate| json!({
                "rate": rate,
                "late": statistics.late,
                "lag_max_us": microseconds(statistics.lag_ns_max),
                "unsent": statistics.unsent,
            })),
            "latency_us": latency(statistics),
            "spectrum": spectrum(statistics),
            "cpu": cpu(before, after),
        }))
    }

    /// Returns the report as a JSON object. Names end in the unit of times: `_s` seconds, `_us` microseconds.
    pub fn json(&self) -> String {
        self.0.to_string()
    }
}

fn latency(statistics: &LoadStatistics) -> Value {
    let histogram = &statistics.latency_ns;
    let mut latency = json!({
        "samples": histogram.len(),
        "mean": histogram.mean() / 1e3,
        "min": microseconds(histogram.min()),
        "max": microseconds(histogram.max()),
    });
    for (name, quantile) in QUANTILES {
        latency[name] = json!(microseconds(histogram.value_at_quantile(quantile)));
    }
    latency
}

/// Returns the latency by quantile, approaching 1 as far as samples exist, for a percentile plot.
fn spectrum(statistics: &LoadStatistics) -> Vec<Value> {
    let histogram = &statistics.latency_ns;
    let point = |quantile: f64| json!([quantile, microseconds(histogram.value_at_quantile(quantile))]);
    let mut points = vec![point(0.0)];
    let mut rest = 1.0;
    while !histogram.is_empty() && rest * histogram.len() as f64 >= 1.0 {
        // Eight points for every halving of the remaining quantiles.
        points.extend((1..=8).map(|eighth| point(1.0 - rest * (1.0 - f64::from(eighth) / 16.0))));
        rest /= 2.0;
    }
    points
}

fn cpu(before: &Usage, after: &Usage) -> Value {
    let difference = |after: Option<f64>, before: Option<f64>| Some(after? - before?);
    let watched: Vec<Option<f64>> = before
        .watched
        .iter()
        .zip(&after.watched)
        .map(|(before, after)| difference(*after, *before))
        .collect();
    json!({
        "interval_s": (after.at - before.at).as_secs_f64(),
        "own_s": after.own - before.own,
        "watched_s": watched,
        "machine_s": difference(after.machine, before.machine),
    })
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
