//! One scenario of the Rust client of 5.x: SCENARIO ADDRESS TOPIC GROUP [ARGUMENT…]; ../scenarios.md has them all.
//!
//! The client has no push consumer, no recall, no change of the invisible time, and no TLS.

mod limits;

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::AsyncReadExt;

type Outcome = Result<Value, Box<dyn Error>>;

/// The time of a message that was received: the shortest that servers take.
const HIDDEN: Duration = Duration::from_secs(10);
const BATCH: i32 = 32;
const RECEIVING: Duration = Duration::from_secs(30);

struct Scenario {
    address: String,
    topic: String,
    group: String,
    rest: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, address, topic, group, rest @ ..] = words.as_slice() else {
        return Err("SCENARIO ADDRESS TOPIC GROUP [ARGUMENT…]".into());
    };
    let scenario = Scenario {
        address: address.clone(),
        topic: topic.clone(),
        group: group.clone(),
        rest: rest.to_vec(),
    };
    let seen = match name.as_str() {
        "normal" => scenario.normal().await,
        "fifo" => scenario.fifo().await,
        "delay" => scenario.delay().await,
        "transactions" => scenario.transactions().await,
        "filter" => scenario.filter().await,
        "send" => scenario.send().await,
        "steady" => scenario.steady().await,
        "exchange" => scenario.exchange().await,
        "batches" => scenario.batches().await,
        "stuck" => scenario.stuck().await,
        "bounds" => scenario.bounds().await,
        "late" => scenario.late().await,
        "checks" => scenario.checks().await,
        _ => Err(format!("no scenario {name}").into()),
    }?;
    println!("{seen}");
    // Without the end of streams that are still open.
    std::process::exit(0)
}

impl Scenario {
    async fn normal(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let message = MessageBuilder::builder()
            .set_topic(&self.topic)
            .set_tag("greeting")
            .set_keys(vec!["key-1"])
            .set_properties(HashMap::from([("color", "blue")]))
            .set_body(b"hello".to_vec())
            .build()?;
        let receipt = producer.send(message).await?;
        let all = FilterExpression::new(FilterType::Tag, "*");
        let found: Vec<Value> = self
            .received(&consumer, &all, 1)
            .await?
            .iter()
            .map(|view| {
                json!({
                    "id": view.message_id(),
                    "body": body(view),
                    "tag": view.tag(),
                    "keys": view.keys(),
                    "color": view.properties().get("color"),
                    "attempt": view.delivery_attempt(),
                })
            })
            .collect();
        let rest = self.receive(&consumer, &all, BATCH).await?.len();
        Ok(json!({ "sent": receipt.message_id(), "found": found, "rest": rest }))
    }

    async fn fifo(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        for number in 0..4 {
            let body = number.to_string().into_bytes();
            let message = MessageBuilder::fifo_message_builder(&self.topic, body, "order-1").build()?;
            producer.send(message).await?;
        }
        let views = self.received(&consumer, &FilterExpression::new(FilterType::Tag, "*"), 4).await?;
        let groups: Vec<_> = views.iter().map(MessageView::message_group).collect();
        Ok(json!({ "found": bodies(&views), "groups": groups }))
    }

    async fn delay(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let begin = SystemTime::now();
        let due = begin.duration_since(UNIX_EPOCH)?.as_secs() as i64 + 3;
        let message = MessageBuilder::delay_message_builder(&self.topic, b"later".to_vec(), due).build()?;
        producer.send(message).await?;
        let views = self.received(&consumer, &FilterExpression::new(FilterType::Tag, "*"), 1).await?;
        let after = begin.elapsed()?.as_secs_f64();
        Ok(json!({ "found": bodies(&views), "after": after, "recall": null }))
    }

    async fn transactions(&self) -> Outcome {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let mut option = ProducerOption::default();
        option.set_topics(vec![&self.topic]);
        let checker = Box::new(move |_: String, view: MessageView| {
            noted.lock().unwrap().push(body(&view));
            TransactionResolution::COMMIT
        });
        let mut producer = Producer::new_transaction_producer(option, self.client(), checker)?;
        producer.start().await?;
        let consumer = self.consumer().await?;
        for text in ["commit", "rollback", "check"] {
            let half = text.as_bytes().to_vec();
            let message = MessageBuilder::transaction_message_builder(&self.topic, half).build()?;
            let transaction = producer.send_transaction_message(message).await?;
            match text {
                "commit" => transaction.commit().await?,
                "rollback" => transaction.rollback().await?,
                _ => {}
            }
        }
        let views = self.received(&consumer, &FilterExpression::new(FilterType::Tag, "*"), 2).await?;
        let asked = asked.lock().unwrap().clone();
        Ok(json!({ "found": bodies(&views), "asked": asked }))
    }

    async fn filter(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let [kind, expression] = self.rest.as_slice() else { return Err("KIND EXPRESSION".into()) };
        for number in 0..4 {
            let message = MessageBuilder::builder()
                .set_topic(&self.topic)
                .set_tag(if number % 2 == 0 { "even" } else { "odd" })
                .set_properties(HashMap::from([("number", number.to_string())]))
                .set_body(number.to_string().into_bytes())
                .build()?;
            producer.send(message).await?;
        }
        let wanted = filter_of(kind, expression);
        Ok(json!({ "found": bodies(&self.received(&consumer, &wanted, 2).await?) }))
    }

    async fn send(&self) -> Outcome {
        let sent = async {
            let producer = self.producer().await?;
            let message = self.message("hello")?;
            Ok::<_, Box<dyn Error>>(producer.send(message).await?.message_id().to_owned())
        };
        Ok(match sent.await {
            Ok(id) => json!({ "sent": id }),
            Err(refused) => json!({ "refused": refused.to_string() }),
        })
    }

    async fn steady(&self) -> Outcome {
        let producer = self.producer().await?;
        let over = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&over);
        tokio::spawn(async move {
            // One byte, or the end of the input.
            drop(tokio::io::stdin().read(&mut [0]).await);
            ending.store(true, Ordering::Relaxed);
        });
        let mut number = 0;
        while !over.load(Ordering::Relaxed) {
            match producer.send(self.message(&number.to_string())?).await {
                Ok(_) => println!("{}", json!({ "sent": number.to_string() })),
                Err(failed) => println!("{}", json!({ "failed": failed.to_string() })),
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(json!({ "ended": self.topic }))
    }

    /// The client of the user in the environment, if it names one.
    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(&self.address);
        option.set_enable_tls(std::env::var("GRPC_TLS").is_ok_and(|value| value == "1"));
        option.set_long_polling_timeout(Duration::from_secs(5));
        if let (Ok(user), Ok(secret)) = (std::env::var("GRPC_USER"), std::env::var("GRPC_SECRET")) {
            option.set_access_key(user);
            option.set_secret_key(secret);
        }
        option
    }

    async fn producer(&self) -> Result<Producer, Box<dyn Error>> {
        let mut option = ProducerOption::default();
        option.set_topics(vec![&self.topic]);
        let mut producer = Producer::new(option, self.client())?;
        producer.start().await?;
        Ok(producer)
    }

    async fn consumer(&self) -> Result<SimpleConsumer, Box<dyn Error>> {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![&self.topic]);
        option.set_consumer_group(&self.group);
        let mut consumer = SimpleConsumer::new(option, self.client())?;
        consumer.start().await?;
        Ok(consumer)
    }

    fn message(&self, body: &str) -> Result<impl Message, Box<dyn Error>> {
        let body = body.as_bytes().to_vec();
        Ok(MessageBuilder::builder().set_topic(&self.topic).set_body(body).build()?)
    }

    /// Receives messages, or none: the deadline of a call is the end of its long poll, so that a reply may be late.
    async fn receive(
        &self,
        consumer: &SimpleConsumer,
        wanted: &FilterExpression,
        most: i32,
    ) -> Result<Vec<MessageView>, Box<dyn Error>> {
        match consumer.receive_with(&self.topic, wanted, most, HIDDEN).await {
            Err(late) if format!("{late:?}").contains("Timeout expired") => Ok(Vec::new()),
            received => Ok(received?),
        }
    }

    /// Receives and acknowledges at least `count` messages, unless the time is over.
    async fn received(
        &self,
        consumer: &SimpleConsumer,
        wanted: &FilterExpression,
        count: usize,
    ) -> Result<Vec<MessageView>, Box<dyn Error>> {
        let (mut found, begin) = (Vec::new(), Instant::now());
        while found.len() < count && begin.elapsed() < RECEIVING {
            for view in self.receive(consumer, wanted, BATCH).await? {
                consumer.ack(&view).await?;
                found.push(view);
            }
        }
        Ok(found)
    }
}

fn filter_of(kind: &str, expression: &str) -> FilterExpression {
    FilterExpression::new(if kind == "SQL" { FilterType::Sql } else { FilterType::Tag }, expression)
}

fn body(view: &MessageView) -> String {
    String::from_utf8_lossy(view.body()).into_owned()
}

fn bodies(views: &[MessageView]) -> Vec<String> {
    views.iter().map(body).collect()
}
