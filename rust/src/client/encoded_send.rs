//! Encoded send: a message or batch with written properties and a compressed body, ready to be framed for any broker.
//!
//! Invariant: every attempt sends the same bytes; only opaque, broker and queue differ. Any thread.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::message_fields::MessageFields;
use super::route_cache::Target;
use crate::message::batch::InnerMessage;
use crate::message::compression::{LEVEL_DEFAULT, compress};
use crate::message::id::UniqueIds;
use crate::message::namespace::Namespace;
use crate::message::properties::name;
use crate::message::sysflag::{COMPRESSED, Compression, PREPARED};
use crate::remoting::FrameError;
use crate::remoting::codes::{flag, language, request};
use crate::remoting::frame::Encoding;
use crate::remoting::header::HeaderWriter;
use crate::requests::credentials::Credentials;
use crate::requests::send::{SendHeader, SendOrigin};

/// The settings common to all messages of a producer.
#[derive(Debug)]
pub(crate) struct ProducerContext {
    pub(crate) group: String,
    /// Minimum size of bodies that are compressed.
    pub(crate) compress_from_bytes: Option<usize>,
    pub(crate) compression: Compression,
    /// Queue count of a topic created by its first message.
    pub(crate) template_queues: i32,
    pub(crate) ids: UniqueIds,
    /// The namespace of topics on the wire; the group already includes it.
    pub(crate) namespace: Option<Namespace>,
    /// Whether messages are replies, which brokers forward to their requesters.
    pub(crate) sends_replies: bool,
}

/// One encoded message or batch.
#[derive(Debug)]
pub(crate) struct EncodedSend {
    context: Arc<ProducerContext>,
    /// The topic as users write it.
    pub(crate) topic: Arc<str>,
    properties: String,
    pub(super) body: Bytes,
    sys_flag: i32,
    flag: i32,
    born_ms: i64,
    ids: Ids,
}

/// The ids of the messages.
#[derive(Debug)]
enum Ids {
    /// The position of a single message's id in its properties.
    Alone(Range<usize>),
    /// The ids of a batch's members, in order.
    Members(Vec<String>),
}

/// A batch being built: encoded messages and their ids.
#[derive(Debug, Default)]
pub(crate) struct BatchBuilder {
    body: Vec<u8>,
    unique_ids: Vec<String>,
    /// A reusable buffer for the properties of one message.
    properties: Vec<u8>,
}

impl BatchBuilder {
    /// Reserves capacity for about this many messages of this total size.
    pub(crate) fn with_capacity(messages: usize, bytes: usize) -> Self {
        Self {
            body: Vec::with_capacity(bytes),
            unique_ids: Vec::with_capacity(messages),
            properties: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, fields: &MessageFields, content: &[u8], unique_id: String) {
        self.properties.clear();
        fields.put_properties(&unique_id, &mut self.properties);
        InnerMessage { flag: fields.flag, body: content, properties: &self.properties }
            .encode(&mut self.body);
        self.unique_ids.push(unique_id);
    }
}

impl ProducerContext {
    /// Creates a source of unique ids from machine, process and `salt`.
    pub(crate) fn unique_ids(salt: u32) -> UniqueIds {
        UniqueIds::new(own_address(), std::process::id(), salt)
    }

    /// Encodes one message created at `now_ms`.
    pub(crate) fn message(self: &Arc<Self>, fields: &MessageFields, body: &[u8], now_ms: u64) -> EncodedSend {
        self.message_as(fields, body, &self.ids.next(now_ms), now_ms)
    }

    /// Encodes one message with the caller's id.
    pub(crate) fn message_as(
        self: &Arc<Self>,
        fields: &MessageFields,
        body: &[u8],
        unique_id: &str,
        now_ms: u64,
    ) -> EncodedSend {
        let (body, sys_flag) = self.compressed(body);
        let properties = fields.properties_text(unique_id);
        let ids = Ids::last_of(&properties, unique_id);
        let encoded = self.encoded(fields.topic.as_str().into(), properties, body, ids, now_ms);
        EncodedSend { sys_flag, flag: fields.flag, ..encoded }
    }

    /// Encodes a half message, which waits at the broker for the end of its transaction.
    pub(crate) fn half(self: &Arc<Self>, fields: &MessageFields, body: &[u8], now_ms: u64) -> EncodedSend {
        let mut half = self.message(fields, body, now_ms);
        half.sys_flag |= PREPARED;
        half.properties.extend(["TRAN_MSG\u{1}true\u{2}PGROUP\u{1}", &self.group, "\u{2}"]);
        half
    }

    /// Encodes a message without any fields.
    pub(crate) fn plain(self: &Arc<Self>, topic: &Arc<str>, body: &[u8], now_ms: u64) -> EncodedSend {
        let unique_id = self.ids.next(now_ms);
        let (body, sys_flag) = self.compressed(body);
        let properties = own_properties(&unique_id);
        let ids = Ids::last_of(&properties, &unique_id);
        let encoded = self.encoded(Arc::clone(topic), properties, body, ids, now_ms);
        EncodedSend { sys_flag, ..encoded }
    }

    /// Encodes messages of one topic as a batch for one queue. A batch is never compressed.
    pub(crate) fn batch<'a>(
        self: &Arc<Self>,
        topic: &str,
        messages: impl IntoIterator<Item = (&'a MessageFields, &'a [u8])>,
        now_ms: u64,
    ) -> EncodedSend {
        let mut builder = BatchBuilder::default();
        for (fields, content) in messages {
            builder.add(fields, content, self.ids.next(now_ms).as_str().to_owned());
        }
        self.finish(topic, builder, now_ms)
    }

    pub(crate) fn finish(self: &Arc<Self>, topic: &str, builder: BatchBuilder, now_ms: u64) -> EncodedSend {
        let properties = own_properties(&self.ids.next(now_ms));
        self.encoded(topic.into(), properties, builder.body.into(), Ids::Members(builder.unique_ids), now_ms)
    }

    /// Assembles one message or batch without flags.
    fn encoded(
        self: &Arc<Self>,
        topic: Arc<str>,
        mut properties: String,
        body: Bytes,
        ids: Ids,
        now_ms: u64,
    ) -> EncodedSend {
        if let Some(namespace) = &self.namespace {
            // As in Java's producers: only the batch as a whole has this property.
            properties.extend([name::INSTANCE_ID, "\u{1}", namespace.name(), "\u{2}"]);
        }
        EncodedSend {
            context: Arc::clone(self),
            topic,
            properties,
            body,
            sys_flag: 0,
            flag: 0,
            born_ms: now_ms as i64,
            ids,
        }
    }

    fn compressed(&self, body: &[u8]) -> (Bytes, i32) {
        if self.compress_from_bytes.is_some_and(|limit| body.len() >= limit)
            && let Ok(packed) = compress(self.compression, LEVEL_DEFAULT, body)
            && packed.len() < body.len()
        {
            return (packed.into(), COMPRESSED | self.compression.sys_flag());
        }
        (Bytes::copy_from_slice(body), 0)
    }
}

impl Ids {
    /// Returns a single message, whose properties end with its id and a separator.
    fn last_of(properties: &str, unique_id: &str) -> Self {
        let end = properties.len() - 1;
        Self::Alone(end - unique_id.len()..end)
    }
}

impl EncodedSend {
    /// Returns whether it was made as a batch, even of one message.
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self.ids, Ids::Members(_))
    }

    /// Returns whether it is a half message.
    pub(crate) fn is_half(&self) -> bool {
        self.sys_flag & PREPARED != 0
    }

    /// Returns the ids of its messages, one per member of a batch.
    pub(crate) fn unique_ids(&self) -> impl Iterator<Item = &str> {
        let (alone, members) = match &self.ids {
            Ids::Alone(place) => (self.properties.get(place.clone()), [].as_slice()),
            Ids::Members(ids) => (None, ids.as_slice()),
        };
        alone.into_iter().chain(members.iter().map(String::as_str))
    }

    /// Returns the encoded size of body and properties.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len() + self.properties.len()
    }

    /// Appends the prefix and header of a frame for one attempt; `body` follows. Fails when the frame exceeds its
    /// length field.
    pub(crate) fn head(
        &self,
        out: &mut Vec<u8>,
        encoding: Encoding,
        opaque: i32,
        is_oneway: bool,
        target: &Target,
        credentials: Option<&Credentials>,
    ) -> Result<(), FrameError> {
        let start = out.len();
        let ProducerContext { group, template_queues, namespace, sends_replies, .. } = &*self.context;
        let wrapped = namespace.as_ref().map(|namespace| namespace.wrap(&self.topic));
        let fields = SendHeader {
            topic: wrapped.as_deref().unwrap_or(&self.topic),
            queue_id: target.queue_id,
            sys_flag: self.sys_flag,
            born_timestamp_ms: self.born_ms,
            flag: self.flag,
            properties: &self.properties,
            reconsume_times: 0,
            reconsume_max: None,
            is_batch: self.is_batch(),
        };
        let origin = SendOrigin { group, template_queues: *template_queues, broker: &target.broker };
        let flags = if is_oneway { flag::ONEWAY } else { 0 };
        let code = if *sends_replies { request::SEND_REPLY_MESSAGE_V2 } else { fields.code() };
        let mut header = HeaderWriter::begin_as(language::PYTHON, out, encoding, code, opaque, flags, None);
        fields.encode(&origin, &mut header);
        if let Some(credentials) = credentials {
            credentials.announce(&mut header);
        }
        header.finish(self.body.len())?;
        credentials.map_or(Ok(()), |credentials| credentials.sign(out, start, &self.body))
    }
}

/// Properties of every message: the sender waits for storage, and the id.
fn own_properties(unique_id: &str) -> String {
    ["WAIT\u{1}true\u{2}UNIQ_KEY\u{1}", unique_id, "\u{2}"].concat()
}

/// Returns an address of this machine for message ids. Connecting a datagram socket only selects a route; it sends
/// nothing.
fn own_address() -> Ipv4Addr {
    let routed = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(("192.0.2.1", 9)).and_then(|()| socket.local_addr()));
    match routed.map(|address| address.ip()) {
        Ok(std::net::IpAddr::V4(address)) => address,
        _ => Ipv4Addr::LOCALHOST,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::message::batch::inner_messages;
    use crate::message::compression::decompress;
    use crate::remoting::frame::{FrameLimits, split};
    use crate::remoting::header::Header;

    const NOW_MS: u64 = 1_700_000_000_000;

    pub(crate) fn context(compress_from_bytes: Option<usize>) -> Arc<ProducerContext> {
        Arc::new(ProducerContext {
            group: "pg".into(),
            compress_from_bytes,
            compression: Compression::Zlib,
            template_queues: 4,
            ids: ProducerContext::unique_ids(1),
            namespace: None,
            sends_replies: false,
        })
    }

    fn fields() -> MessageFields {
        MessageFields {
            topic: "orders".into(),
            tag: Some("paid".into()),
            flag: 7,
            ..MessageFields::default()
        }
    }

    fn target() -> Target {
        Target { address: "127.0.0.1:1".into(), broker: "broker-a".into(), queue_id: 3 }
    }

    #[test]
    fn both_encodings_carry_the_same_request() {
        let message = context(None).message(&fields(), b"hello", NOW_MS);
        for encoding in [Encoding::Json, Encoding::Binary] {
            let mut frame = Vec::new();
            message.head(&mut frame, encoding, 42, false, &target(), None).unwrap();
            frame.extend_from_slice(&message.body);
            let (frame, _) = split(&frame, &FrameLimits::default()).unwrap().unwrap();
            let mut header = Header::new();
            header.decode(&frame).unwrap();
            assert_eq!((header.code, header.opaque, header.is_oneway()), (310, 42, false));
            assert_eq!(frame.body, b"hello");
            let expected = [
                ("a", "pg"),
                ("b", "orders"),
                ("c", "TBW102"),
                ("d", "4"),
                ("e", "3"),
                ("f", "0"),
                ("g", "1700000000000"),
                ("h", "7"),
                ("j", "0"),
                ("k", "false"),
                ("m", "false"),
                ("n", "broker-a"),
            ];
            for (name, value) in expected {
                assert_eq!(header.get(name), Some(value), "{name} in {encoding:?}");
            }
            let id = message.unique_ids().next().unwrap();
            let properties = format!("TAGS\u{1}paid\u{2}WAIT\u{1}true\u{2}UNIQ_KEY\u{1}{id}\u{2}");
            assert_eq!(header.get("i"), Some(properties.as_str()));
        }
    }

    #[test]
    fn a_namespace_is_on_the_wire_and_nowhere_else() {
        let namespace = Namespace::new("shop");
        let context = Arc::new(ProducerContext { namespace, ..Arc::into_inner(context(None)).unwrap() });
        let message = context.message(&fields(), b"hello", NOW_MS);
        assert_eq!(&*message.topic, "orders");
        let mut frame = Vec::new();
        message.head(&mut frame, Encoding::Json, 42, false, &target(), None).unwrap();
        frame.extend_from_slice(&message.body);
        let (frame, _) = split(&frame, &FrameLimits::default()).unwrap().unwrap();
        let mut header = Header::new();
        header.decode(&frame).unwrap();
        assert_eq!((header.get("b"), header.get("c")), (Some("shop%orders"), Some("TBW102")));
        assert!(header.get("i").unwrap().ends_with("\u{2}INSTANCE_ID\u{1}shop\u{2}"));
    }

    #[test]
    fn a_large_body_is_compressed_and_flagged() {
        let body = vec![b'x'; 10_000];
        let packed = context(Some(4096)).message(&fields(), &body, NOW_MS);
        assert_eq!(packed.sys_flag, 0x301);
        assert_eq!(decompress(packed.sys_flag, &packed.body, 1 << 20).unwrap().as_ref(), body);
        let small = context(Some(4096)).message(&fields(), &body[..4095], NOW_MS);
        assert_eq!((small.sys_flag, small.body.len()), (0, 4095));
    }

    #[test]
    fn a_half_says_so_and_names_its_group() {
        let half = context(None).half(&fields(), b"hello", NOW_MS);
        assert!(half.is_half());
        let id = half.unique_ids().next().unwrap();
        let end = format!("UNIQ_KEY\u{1}{id}\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}pg\u{2}");
        assert!(half.properties.ends_with(&end), "{:?}", half.properties);
    }

    #[test]
    fn a_batch_holds_its_messages_in_order_each_with_its_own_id() {
        let (first, second) = (fields(), MessageFields { tag: None, ..fields() });
        let messages = [(&first, b"one".as_slice()), (&second, b"two")];
        let batch = context(None).batch("orders", messages, NOW_MS);
        assert!(batch.is_batch());
        let bodies: Vec<&[u8]> = inner_messages(&batch.body).map(|inner| inner.unwrap().body).collect();
        assert_eq!(bodies, [b"one", b"two"]);
        let ids: Vec<&str> = batch.unique_ids().collect();
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
    }
}
