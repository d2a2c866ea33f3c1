//! gRPC: headers and messages of calls of 5.x clients.

use crate::proxy::fuzzed;

/// Reads the headers of a call, a line `name:value` each: its client, its deadline, its signature.
pub fn grpc_metadata(lines: &[u8]) -> bool {
    fuzzed::metadata(lines)
}

/// Reads a request that sends messages; the stored properties are read back.
pub fn grpc_sends(request: &[u8]) -> bool {
    fuzzed::sends(request)
}

/// Converts stored messages to the form of 5.x clients.
pub fn grpc_deliveries(body: &[u8]) -> bool {
    fuzzed::deliveries(body)
}

/// Reads a receipt handle.
pub fn grpc_handle(text: &str) -> bool {
    fuzzed::handle(text)
}

/// Decodes every other kind of request.
pub fn grpc_requests(bytes: &[u8]) -> bool {
    fuzzed::requests(bytes)
}
