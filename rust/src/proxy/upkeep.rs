//! Upkeep: requests of the broker to clients, and what is repeated for them: extensions of messages, and the end of
//! clients that are gone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::acks;
use super::brokers::Brokers;
use super::client::{ConnectedClient, Renewal, RenewalKey};
use super::shared::Proxy;
use super::status::code;
use super::telemetry::BACKOFF_SECONDS;
use crate::remoting::codes::{flag, response};
use crate::remoting::frame::Encoding;
use crate::remoting::header::{Header, HeaderWriter};
use crate::remoting::{CallError, Peer, Requests};

/// The interval of the rounds.
const ROUND: Duration = Duration::from_secs(5);
/// Messages are extended this long before they become visible.
const AHEAD_MS: i64 = 10_000;
/// Messages that are extended at the same time: a broker without answers must not delay those of others.
const AT_ONCE_MAX: usize = 256;
/// The times by which a message is extended, the last one for all further ones.
const STEPS_MINUTES: [i64; 6] = [1, 3, 5, 10, 30, 60];
/// Messages are not extended any more after this time.
const RENEWED_MS_MAX: i64 = 10_800_000;
/// Failures after which a message is not extended any more.
const FAILURES_MAX: u32 = 3;
/// The broker's check of a half message.
const CHECK_TRANSACTION_STATE: i32 = 39;
/// The broker's notice that another client has a lite topic of this one.
const NOTIFY_UNSUBSCRIBE_LITE: i32 = 200_073;

/// Takes the requests of the broker.
pub(super) struct BrokerRequests(pub(super) Weak<Proxy>);

impl Requests for BrokerRequests {
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]) {
        let Some(proxy) = self.0.upgrade() else { return };
        if header.code == CHECK_TRANSACTION_STATE {
            if let Some(owner) = proxy.client_of(peer.key()) {
                proxy.check_transaction(&owner, header, body);
            }
        } else if header.code == NOTIFY_UNSUBSCRIBE_LITE {
            if let Some((client, _)) = proxy.client_of(peer.key()) {
                Proxy::lost_lite_topic(&client, header);
            }
        } else if !header.is_oneway() {
            let opaque = header.opaque;
            // A connection that ended needs no answer.
            drop(peer.send(|_, out| {
                let code = response::REQUEST_CODE_NOT_SUPPORTED;
                let remark = Some("not supported by gRPC clients");
                HeaderWriter::begin(out, Encoding::Json, code, opaque, flag::RESPONSE, remark).finish(0)
            }));
        }
    }

    fn closed(&self, peer: &Arc<Peer>, _: &CallError) {
        if let Some(proxy) = self.0.upgrade() {
            proxy.forget_peer(peer.key());
        }
    }
}

/// Periodically asks the name servers whether they answer, until the proxy is gone.
pub(super) async fn probe(proxy: Weak<Proxy>) {
    while let Some(proxy) = proxy.upgrade() {
        if let (Brokers::Cluster(cluster), Ok(remoting)) = (&proxy.brokers, proxy.running()) {
            cluster.probe(remoting).await;
        }
        drop(proxy);
        tokio::time::sleep(ROUND).await;
    }
}

/// Repeats the rounds until the proxy is gone.
pub(super) async fn run(proxy: Weak<Proxy>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(proxy) = proxy.upgrade() else { return };
        for client in proxy.take_gone() {
            let proxy = Arc::clone(&proxy);
            tokio::spawn(async move { proxy.dismiss(&client).await });
        }
        let due_ms = proxy.now_ms().saturating_add(AHEAD_MS);
        let mut extensions = JoinSet::new();
        for client in proxy.all_clients() {
            for (key, renewal) in client.due_renewals(due_ms) {
                if extensions.len() >= AT_ONCE_MAX {
                    extensions.join_next().await;
                }
                let (proxy, client) = (Arc::clone(&proxy), Arc::clone(&client));
                extensions.spawn(async move { extend(&proxy, &client, key, renewal).await });
            }
        }
        while extensions.join_next().await.is_some() {}
    }
}

/// Extends the time of one message.
async fn extend(proxy: &Arc<Proxy>, client: &Arc<ConnectedClient>, key: RenewalKey, renewal: Renewal) {
    let Renewal { handle, topic, since_ms, count, failures } = renewal;
    let is_over = proxy.now_ms().saturating_sub(since_ms) >= RENEWED_MS_MAX;
    let last = STEPS_MINUTES.len() - 1;
    let step = STEPS_MINUTES.get(count.min(last)).copied().unwrap_or(1);
    let retry = BACKOFF_SECONDS.get(2).copied().unwrap_or(10);
    let ms = if is_over { retry * 1_000 } else { step * 60_000 };
    let changed = acks::change_for(proxy, client, &key.group, &topic, &handle, ms).await;
    let next = match changed {
        Ok(handle) if !is_over => Some(Renewal { handle, topic, since_ms, count: count + 1, failures: 0 }),
        Err(refused)
            if refused.code != code::INVALID_RECEIPT_HANDLE && failures < FAILURES_MAX && !is_over =>
        {
            Some(Renewal { handle, topic, since_ms, count, failures: failures + 1 })
        }
        _ => None,
    };
    client.renewed(&key, next);
}
