//! Sends client messages over HTTP/1.1: each message is one call, numbered so that the server
//! can order them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use secrecy::SecretString;
use tokio::sync::mpsc;

use super::endpoint::BaseUrl;
use super::error::{TransportError, WireError};
use super::headers::{BlobKey, HttpVersion, Identity, RequestIds};
use super::http_clients::Http;
use super::unary::{Call, CallError};
use cursor_proto::aiserver::v1::{BidiAppendRequest, BidiAppendResponse, BidiRequestId};

const PATH: &str = "/aiserver.v1.BidiService/BidiAppend";

/// Maximum number of concurrent appends, as in the official client.
const MAX_IN_FLIGHT: usize = 16;

/// Delays before the retries of an append.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];

/// Appends messages until one append fails or the channel closes.
pub(super) struct Appender {
    pub(super) http: Arc<Http>,
    pub(super) base: BaseUrl,
    pub(super) identity: Identity,
    pub(super) token: SecretString,
    pub(super) ids: RequestIds,
    pub(super) blob_key: BlobKey,
}

impl Appender {
    /// Runs until `messages` closes; an error ends the run.
    pub(super) async fn run(self, mut messages: mpsc::Receiver<Bytes>) -> Result<(), CallError> {
        let mut in_flight = FuturesUnordered::new();
        let mut next = 0;
        loop {
            tokio::select! {
                message = messages.recv(), if in_flight.len() < MAX_IN_FLIGHT => match message {
                    Some(message) => {
                        in_flight.push(self.deliver(message, next));
                        next += 1;
                    }
                    None => break,
                },
                Some(sent) = in_flight.next() => sent?,
            }
        }
        while let Some(sent) = in_flight.next().await {
            sent?;
        }
        Ok(())
    }

    /// Appends a message. Retries if it may not have arrived; the server recognises a duplicate by
    /// its number.
    async fn deliver(&self, message: Bytes, seqno: i64) -> Result<(), CallError> {
        for pause in PAUSES {
            match self.append(message.clone(), seqno).await {
                Err(error) if is_temporary(&error) => {
                    tracing::debug!(seqno, "append.again");
                    tokio::time::sleep(pause).await;
                }
                appended => return appended,
            }
        }
        self.append(message, seqno).await
    }

    async fn append(&self, message: Bytes, seqno: i64) -> Result<(), CallError> {
        let deadline = deadline(message.len());
        let headers = self.identity.append(
            &self.token,
            &self.ids,
            &self.blob_key,
            deadline.as_millis() as u64,
        );
        let request = BidiAppendRequest {
            data: hex(&message),
            request_id: Some(BidiRequestId {
                request_id: self.ids.request.to_string(),
            }),
            append_seqno: seqno,
            data_binary: Bytes::new(),
        };
        let call = Call {
            base: &self.base,
            path: PATH,
            headers,
            version: HttpVersion::Http1,
            deadline,
        };
        let BidiAppendResponse {} = self.http.call(call, &request).await?;
        Ok(())
    }
}

/// Returns whether a retry of the append may succeed. An append that exceeded its deadline is not
/// retried, because it has used its time.
fn is_temporary(error: &CallError) -> bool {
    match error {
        CallError::Setup(_)
        | CallError::Wire(WireError::Transport(
            TransportError::Deadline { .. } | TransportError::Tls { .. },
        )) => false,
        CallError::Wire(WireError::Transport(_)) => true,
        CallError::Wire(WireError::Remote(remote)) => remote
            .status
            .is_some_and(|status| status >= 500 && status != 501 && status != 505),
    }
}

/// Returns the deadline for a message: one minute, plus one second for every 128 KiB of hex.
fn deadline(length: usize) -> Duration {
    Duration::from_millis(60_000 + (2 * length as u64 * 1000).div_ceil(128 * 1024))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_grows_with_the_message() {
        // The official client sent 60,002 ms for a message of 120 bytes.
        assert_eq!(deadline(120).as_millis(), 60_002);
        assert_eq!(deadline(64 * 1024).as_millis(), 61_000);
    }

    #[test]
    fn hex_is_lowercase() {
        assert_eq!(hex(&[0x00, 0xaf, 0x9]), "00af09");
    }
}
