//! Scenarios at the limits of messages, batches, times and checks.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::ProducerOption;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::TransactionResolution;
use rocketmq::Producer;
use serde_json::{json, Value};

use crate::{bodies, body, filter_of, Outcome, Scenario, BATCH, HIDDEN};

const TURNS: Duration = Duration::from_secs(60);

impl Scenario {
    pub(crate) async fn exchange(&self) -> Outcome {
        let [kind, expression, count, texts @ ..] = self.rest.as_slice() else {
            return Err("KIND EXPRESSION COUNT MESSAGE…".into());
        };
        let (producer, count) = (self.producer().await?, count.parse::<usize>()?);
        let wanted = filter_of(kind, expression);
        let consumer = if count > 0 { Some(self.consumer().await?) } else { None };
        let mut refused = Vec::new();
        for text in texts {
            let sent = async { Ok::<_, Box<dyn Error>>(producer.send(self.described(text)?).await?) };
            refused.push(sent.await.err().map(|reason| reason.to_string()));
        }
        let views = match &consumer {
            Some(consumer) => self.received(consumer, &wanted, count).await?,
            None => Vec::new(),
        };
        let found: Vec<Value> = views
            .iter()
            .map(|view| {
                json!({
                    "body": body(view),
                    "tag": view.tag(),
                    "keys": view.keys(),
                    "properties": view.properties(),
                })
            })
            .collect();
        Ok(json!({ "refused": refused, "found": found }))
    }

    pub(crate) async fn batches(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        let count: usize = self.rest.first().ok_or("COUNT")?.parse()?;
        for number in 0..count {
            producer.send(self.message(&number.to_string())?).await?;
        }
        let (mut sizes, mut found, begin) = (Vec::new(), Vec::new(), Instant::now());
        while found.len() <= count && begin.elapsed() < TURNS {
            let views = self.receive(&consumer, &all(), 50).await?;
            for view in &views {
                let is_skipped = view.body() == b"0" && view.delivery_attempt() == 1;
                found.push(json!([body(view), view.delivery_attempt()]));
                if !is_skipped {
                    consumer.ack(view).await?;
                }
            }
            if !views.is_empty() {
                sizes.push(views.len());
            }
        }
        let rest = self.receive(&consumer, &all(), BATCH).await?.len();
        Ok(json!({ "sizes": sizes, "found": found, "rest": rest }))
    }

    pub(crate) async fn stuck(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        for number in 0..6 {
            let body = number.to_string().into_bytes();
            producer
                .send(MessageBuilder::fifo_message_builder(&self.topic, body, "order-1").build()?)
                .await?;
        }
        let (mut found, mut acked, begin) = (Vec::new(), HashSet::new(), Instant::now());
        while acked.len() < 6 && begin.elapsed() < TURNS {
            let views = self.receive(&consumer, &all(), 3).await?;
            if views.is_empty() {
                continue;
            }
            let skipped = usize::from(found.is_empty());
            for view in views.iter().skip(skipped) {
                consumer.ack(view).await?;
                acked.insert(body(view));
            }
            found.push(bodies(&views));
        }
        Ok(json!({ "batches": found }))
    }

    pub(crate) async fn bounds(&self) -> Outcome {
        let consumer = self.consumer().await?;
        let mut refused = Vec::new();
        for seconds in [9, 43_201] {
            let time = Duration::from_secs(seconds);
            let seen = consumer.receive_with(&self.topic, &all(), 1, time).await;
            refused.push(seen.err().map(|reason| reason.to_string()));
        }
        let begin = Instant::now();
        let count = self.receive(&consumer, &all(), 100_000).await?.len();
        Ok(json!({ "refused": refused, "count": count, "after": begin.elapsed().as_secs_f64() }))
    }

    pub(crate) async fn late(&self) -> Outcome {
        let (producer, consumer) = (self.producer().await?, self.consumer().await?);
        producer.send(self.message("late")?).await?;
        let first = loop {
            if let Some(view) = self.receive(&consumer, &all(), 1).await?.pop() {
                break view;
            }
        };
        tokio::time::sleep(HIDDEN + Duration::from_secs(1)).await;
        let refused = consumer.ack(&first).await.err().map(|reason| reason.to_string());
        let views = self.received(&consumer, &all(), 1).await?;
        let attempt = views.first().map(MessageView::delivery_attempt);
        Ok(json!({ "refused": refused, "attempt": attempt }))
    }

    pub(crate) async fn checks(&self) -> Outcome {
        let asked = Arc::new(Mutex::new(Vec::<String>::new()));
        let noted = Arc::clone(&asked);
        let mut option = ProducerOption::default();
        option.set_topics(vec![&self.topic]);
        let checker = Box::new(move |_: String, view: MessageView| {
            let (mut noted, text) = (noted.lock().unwrap(), body(&view));
            let is_first = !noted.contains(&text);
            noted.push(text.clone());
            match text.as_str() {
                "rollback" => TransactionResolution::ROLLBACK,
                "unknown" if is_first => TransactionResolution::UNKNOWN,
                _ => TransactionResolution::COMMIT,
            }
        });
        let mut producer = Producer::new_transaction_producer(option, self.client(), checker)?;
        producer.start().await?;
        let consumer = self.consumer().await?;
        for text in ["commit", "rollback", "unknown"] {
            let half = text.as_bytes().to_vec();
            let message = MessageBuilder::transaction_message_builder(&self.topic, half).build()?;
            drop(producer.send_transaction_message(message).await?);
        }
        let mut views = self.received(&consumer, &all(), 2).await?;
        views.extend(self.receive(&consumer, &all(), BATCH).await?);
        let asked = asked.lock().unwrap().clone();
        Ok(json!({ "found": bodies(&views), "asked": asked }))
    }

    /// Returns the message of an argument.
    fn described(&self, text: &str) -> Result<impl Message, Box<dyn Error>> {
        let (mut made, mut sent) = (MessageBuilder::builder(), b" ".to_vec());
        let (mut keys, mut properties) = (Vec::new(), HashMap::new());
        for field in text.split('&') {
            let (name, value) = field.split_once('=').ok_or("NAME=VALUE")?;
            let (name, value) = (decoded(name)?, decoded(value)?);
            // A message with a group or a time has a type, which only a builder of its own sets.
            match name.as_str() {
                "body" => sent = value.into_bytes(),
                "size" => sent = vec![b'x'; value.parse()?],
                "group" => made = MessageBuilder::fifo_message_builder("", Vec::new(), value),
                "in" => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
                    made = MessageBuilder::delay_message_builder("", Vec::new(), now + value.parse::<i64>()?);
                }
                "key" => keys.push(value),
                "tag" => made = made.set_tag(value),
                _ => drop(properties.insert(name.replacen("property.", "", 1), value)),
            }
        }
        Ok(made.set_topic(&self.topic).set_body(sent).set_keys(keys).set_properties(properties).build()?)
    }
}

fn all() -> FilterExpression {
    FilterExpression::new(FilterType::Tag, "*")
}

/// Decodes `%XX`.
fn decoded(text: &str) -> Result<String, Box<dyn Error>> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or("%XX")?;
        bytes.push(u8::from_str_radix(digits, 16)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(String::from_utf8(bytes)?)
}
