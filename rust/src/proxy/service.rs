//! Service: the methods of `apache.rocketmq.v2.MessagingService`, by name.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::{Request, Response};
use hyper::body::Incoming;
use prost::Message;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Status, Streaming};

use super::api::{
    self, PullMessageRequest, PullMessageResponse, ReceiveMessageRequest, ReceiveMessageResponse,
};
use super::api_lite::SyncLiteSubscriptionRequest;
use super::api_telemetry::TelemetryCommand;
use super::bodies::RequestBody;
use super::caller::{Addresses, Caller};
use super::codec::{Once, Protobuf};
use super::counts::Method;
use super::pulls;
use super::receives::ReceiveStream;
use super::shared::Proxy;
use super::status::{Refused, code};

/// Every method's path begins so.
const SERVICE: &str = "/apache.rocketmq.v2.MessagingService/";
/// Largest request: several messages of the usual limit.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Largest telemetry command: the settings of a thousand topics.
const COMMAND_BYTES_MAX: usize = 128 << 10;

/// A response that has a status.
trait HasStatus: Message + Default + 'static {
    fn refused(status: api::Status) -> Self;

    fn status(&self) -> Option<&api::Status>;
}

macro_rules! with_status {
    ($($response:ident),*) => {
        $(impl HasStatus for api::$response {
            fn refused(status: api::Status) -> Self {
                Self { status: Some(status), ..Self::default() }
            }

            fn status(&self) -> Option<&api::Status> {
                self.status.as_ref()
            }
        })*
    };
}

impl HasStatus for api::StatusResponse {
    fn refused(status: api::Status) -> Self {
        Self { status: Some(status) }
    }

    fn status(&self) -> Option<&api::Status> {
        self.status.as_ref()
    }
}

with_status!(
    QueryRouteResponse,
    QueryAssignmentResponse,
    SendMessageResponse,
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    RecallMessageResponse,
    OffsetResponse
);

/// A call: its client and its body.
struct Call {
    proxy: Arc<Proxy>,
    method: Method,
    caller: Result<Caller, Refused>,
    request: Request<Incoming>,
    receiving: Arc<AtomicUsize>,
}

impl Call {
    fn counted(self) -> (Arc<Proxy>, Method, Result<Caller, Refused>, Request<RequestBody>) {
        let request = self.request.map(|body| RequestBody::counted(body, &self.receiving));
        (self.proxy, self.method, self.caller, request)
    }

    /// Serves a method with one request and one response.
    async fn unary<Q, R, Fut>(
        self,
        answer: impl FnOnce(Arc<Proxy>, Caller, Q) -> Fut + Send + 'static,
    ) -> Response<Body>
    where
        Q: Message + Default + 'static,
        R: HasStatus,
        Fut: Future<Output = R> + Send + 'static,
    {
        let (proxy, method, caller, request) = self.counted();
        let call = move |asked: Q| async move {
            let answer = match caller {
                Ok(caller) => answer(Arc::clone(&proxy), caller, asked).await,
                Err(refused) => R::refused(refused.status()),
            };
            proxy.counts.end(method, answer.status().map_or(code::OK, |status| status.code));
            answer
        };
        let mut grpc = Grpc::new(Protobuf::<Q, R>::default()).max_decoding_message_size(REQUEST_BYTES_MAX);
        grpc.unary(Once::of(call), request).await
    }

    async fn receive(self) -> Response<Body> {
        let (proxy, method, caller, request) = self.counted();
        let call = move |asked: ReceiveMessageRequest| async move {
            let stream = match caller {
                Ok(caller) => proxy.receive_message(&caller, &asked).await,
                Err(refused) => ReceiveStream::refused(Arc::clone(&proxy), &refused),
            };
            proxy.counts.end(method, stream.code());
            stream
        };
        let codec = Protobuf::<ReceiveMessageRequest, ReceiveMessageResponse>::default();
        let mut grpc = Grpc::new(codec).max_decoding_message_size(REQUEST_BYTES_MAX);
        grpc.server_streaming(Once::of(call), request).await
    }

    async fn pull(self) -> Response<Body> {
        let (proxy, method, caller, request) = self.counted();
        let call = move |asked: PullMessageRequest| async move {
            let pulled = match caller {
                Ok(caller) => proxy.pull(&caller, &asked).await,
                Err(refused) => Err(refused),
            };
            proxy.counts.end(method, pulled.as_ref().map_or_else(|refused| refused.code, |_| code::OK));
            pulls::stream(pulled)
        };
        let codec = Protobuf::<PullMessageRequest, PullMessageResponse>::default();
        let mut grpc = Grpc::new(codec).max_decoding_message_size(REQUEST_BYTES_MAX);
        grpc.server_streaming(Once::of(call), request).await
    }

    async fn telemetry(self) -> Response<Body> {
        let Self { proxy, method, caller, request, .. } = self;
        if let Err(refused) = &caller {
            proxy.counts.end(method, refused.code);
        }
        let request = request.map(RequestBody::uncounted);
        let call =
            move |commands: Streaming<TelemetryCommand>| async move { proxy.telemetry(caller, commands) };
        let codec = Protobuf::<TelemetryCommand, TelemetryCommand>::default();
        let mut grpc = Grpc::new(codec).max_decoding_message_size(COMMAND_BYTES_MAX);
        grpc.streaming(Once::of(call), request).await
    }
}

/// Serves one call.
pub(super) async fn serve(
    proxy: Arc<Proxy>,
    addresses: Addresses,
    receiving: Arc<AtomicUsize>,
    request: Request<Incoming>,
) -> Response<Body> {
    let caller = match Caller::read(request.headers(), addresses, &proxy.data_plane) {
        Ok(caller) => Ok(caller),
        Err(refused) => {
            // Wrong signatures of one address are answered later and later.
            tokio::time::sleep(refused.delay).await;
            Err(refused.refused)
        }
    };
    let path = request.uri().path().to_owned();
    let name = path.strip_prefix(SERVICE).unwrap_or_default();
    let Some(method) = Method::named(name) else {
        return Status::unimplemented(format!("{path} is not served")).into_http();
    };
    proxy.counts.begin(method);
    let call = Call { proxy, method, caller, request, receiving };
    macro_rules! unary {
        ($method:ident, $request:ident) => {
            call.unary(
                |proxy, caller, asked: api::$request| async move { proxy.$method(&caller, &asked).await },
            )
            .await
        };
    }
    match method {
        Method::QueryRoute => unary!(query_route, QueryRouteRequest),
        Method::QueryAssignment => unary!(query_assignment, QueryAssignmentRequest),
        Method::Heartbeat => unary!(heartbeat, HeartbeatRequest),
        Method::SendMessage => unary!(send_message, SendMessageRequest),
        Method::ReceiveMessage => call.receive().await,
        Method::AckMessage => unary!(ack_message, AckMessageRequest),
        Method::ForwardMessageToDeadLetterQueue => {
            unary!(forward_to_dead_letters, ForwardToDeadLettersRequest)
        }
        Method::ChangeInvisibleDuration => unary!(change_invisible_duration, ChangeInvisibleDurationRequest),
        Method::EndTransaction => unary!(end_transaction, EndTransactionRequest),
        Method::Telemetry => call.telemetry().await,
        Method::NotifyClientTermination => unary!(notify_termination, NotifyClientTerminationRequest),
        Method::RecallMessage => unary!(recall_message, RecallMessageRequest),
        Method::PullMessage => call.pull().await,
        Method::GetOffset => unary!(get_offset, GetOffsetRequest),
        Method::UpdateOffset => unary!(update_offset, UpdateOffsetRequest),
        Method::QueryOffset => unary!(query_offset, QueryOffsetRequest),
        Method::SyncLiteSubscription => {
            call.unary(|proxy, caller, asked: SyncLiteSubscriptionRequest| async move {
                proxy.sync_lite_subscription(&caller, &asked).await
            })
            .await
        }
    }
}
