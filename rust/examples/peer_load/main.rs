//! The load of `rmqpy bench` for brokers that do not speak RocketMQ's protocol: Kafka, NATS with JetStream, and Redis with
//! streams.
//!
//! The same generator, clocks and counts: only the `Protocol` is another, and the report has the same names. It is built
//! by `benchmarks/` for the comparison and is no part of what users install. Options are those of `rmqpy bench`, as far
//! as they mean anything here.

mod greeting;
mod kafka;
mod line;
mod nats;
mod record_batch;
mod redis;

use std::process::ExitCode;
use std::time::Duration;

use rmqpy::load::{Load, LoadError, Plan, Position, Report, Target, Work};
use rmqpy::remoting::Encoding;

use crate::kafka::Kafka;
use crate::nats::Nats;
use crate::redis::Redis;

const USAGE: &str =
    "usage: peer_load kafka|nats|redis produce|consume ADDRESS TOPIC [-c CONNECTIONS] [-w WINDOW] [-s BODY_BYTES]
       [--batch N] [-m MESSAGES_MAX] [--queues N] [-d SECONDS] [--warm-up SECONDS] [--count N] [--pid PID]";
/// A broker that says nothing for so long has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A body as `rmqpy bench` sends it: text that compresses badly enough.
pub fn body(body_bytes: usize) -> Vec<u8> {
    (0..body_bytes).map(|at| b'a' + (at * 7 % 26) as u8).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((broker, plan)) = understood(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match broker.run(plan) {
        Ok(report) => {
            println!("{}", report.json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy)]
enum Broker {
    Kafka,
    Nats,
    Redis,
}

impl Broker {
    fn run(self, plan: Plan) -> Result<Report, LoadError> {
        let load = match self {
            Self::Kafka => Load::start::<Kafka>(plan),
            Self::Nats => Load::start::<Nats>(plan),
            Self::Redis => Load::start::<Redis>(plan),
        }?;
        while !load.wait(Duration::from_secs(1)) {}
        load.report().unwrap_or_else(|| Err(LoadError::Thread("it ended without a report".to_owned())))
    }
}

/// The broker to load, and the plan; `None` for what is no command line.
fn understood(arguments: &[String]) -> Option<(Broker, Plan)> {
    let (required, mut options) = arguments.split_at_checked(4)?;
    let [broker, work, address, topic] = required else { return None };
    let broker = match broker.as_str() {
        "kafka" => Broker::Kafka,
        "nats" => Broker::Nats,
        "redis" => Broker::Redis,
        _ => return None,
    };
    let mut plan = Plan {
        work: Work::Produce { body_bytes: 128, batch: 1 },
        targets: Vec::new(),
        topic: topic.clone(),
        group: String::new(),
        due_ms: None,
        credentials: None,
        tls: None,
        encoding: Encoding::Binary,
        connections: 4,
        window: 64,
        threads: 1,
        rate: None,
        warm_up: Duration::from_secs(1),
        duration: Duration::from_secs(10),
        count: None,
        timeout: TIMEOUT,
        pids: Vec::new(),
    };
    let (mut body_bytes, mut batch, mut messages_max, mut queues) = (128, 1, 32, 4);
    while let [name, value, rest @ ..] = options {
        match name.as_str() {
            "-c" => plan.connections = value.parse().ok()?,
            "-w" => plan.window = value.parse().ok()?,
            "-s" => body_bytes = value.parse().ok()?,
            "--batch" => batch = value.parse().ok()?,
            "-m" => messages_max = value.parse().ok()?,
            "--queues" => queues = value.parse().ok()?,
            "-d" => plan.duration = seconds(value)?,
            "--warm-up" => plan.warm_up = seconds(value)?,
            "--count" => plan.count = Some(value.parse().ok()?),
            "--pid" => plan.pids.push(value.parse().ok()?),
            _ => return None,
        }
        options = rest;
    }
    plan.work = match work.as_str() {
        "produce" => Work::Produce { body_bytes, batch },
        "consume" => Work::Consume { messages_max },
        _ => return None,
    };
    let queues = (0..queues).map(|queue| Position { queue, begin: 0 }).collect();
    plan.targets.push(Target { address: address.clone(), broker: String::new(), queues });
    options.is_empty().then_some((broker, plan))
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}
