//! Codec: messages between gRPC's frames and their types, and calls as tonic takes them.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use prost::Message;
use tokio_stream::Stream;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

/// First size of a call's buffers, which grow with its messages: most streams of telemetry are idle.
const BUFFER_BYTES: usize = 512;
/// Bytes of messages that are encoded before they are sent.
const BATCH_BYTES: usize = 32 << 10;

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, BATCH_BYTES)
}

/// The codec of a method with requests `Q` and responses `R`.
pub(super) struct Protobuf<Q, R>(PhantomData<(Q, R)>);

impl<Q, R> Default for Protobuf<Q, R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q, R> Codec for Protobuf<Q, R>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
{
    type Encode = R;
    type Decode = Q;
    type Encoder = Half<R>;
    type Decoder = Half<Q>;

    fn encoder(&mut self) -> Half<R> {
        Half(PhantomData)
    }

    fn decoder(&mut self) -> Half<Q> {
        Half(PhantomData)
    }
}

/// One direction of a codec.
pub(super) struct Half<M>(PhantomData<M>);

impl<M: Message> Encoder for Half<M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, message: M, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(out).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

impl<M: Message + Default> Decoder for Half<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        M::decode(from).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

type Answer<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Status>> + Send>>;

/// A call that is made once.
pub(super) struct Once<F>(Option<F>);

impl<F> Once<F> {
    pub(super) fn of(call: F) -> Self {
        Self(Some(call))
    }

    fn answer<Q, R, Fut>(&mut self, asked: Q) -> Answer<R>
    where
        F: FnOnce(Q) -> Fut,
        Fut: Future<Output = R> + Send + 'static,
    {
        match self.0.take() {
            Some(call) => {
                let answer = call(asked);
                Box::pin(async move { Ok(Response::new(answer.await)) })
            }
            None => Box::pin(async { Err(Status::internal("the call was made already")) }),
        }
    }
}

impl<Q, R, F, Fut> UnaryService<Q> for Once<F>
where
    F: FnOnce(Q) -> Fut,
    Fut: Future<Output = R> + Send + 'static,
{
    type Response = R;
    type Future = Answer<R>;

    fn call(&mut self, request: Request<Q>) -> Answer<R> {
        self.answer(request.into_inner())
    }
}

impl<Q, R, S, F, Fut> ServerStreamingService<Q> for Once<F>
where
    S: Stream<Item = Result<R, Status>>,
    F: FnOnce(Q) -> Fut,
    Fut: Future<Output = S> + Send + 'static,
{
    type Response = R;
    type ResponseStream = S;
    type Future = Answer<S>;

    fn call(&mut self, request: Request<Q>) -> Answer<S> {
        self.answer(request.into_inner())
    }
}

impl<Q, R, S, F, Fut> StreamingService<Q> for Once<F>
where
    S: Stream<Item = Result<R, Status>>,
    F: FnOnce(Streaming<Q>) -> Fut,
    Fut: Future<Output = S> + Send + 'static,
{
    type Response = R;
    type ResponseStream = S;
    type Future = Answer<S>;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Answer<S> {
        self.answer(request.into_inner())
    }
}
