//! HTTP/1.1: each client message is a call of its own, numbered so that the server can put
//! them in order.

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
use super::http::Http;
use super::proto::aiserver::v1::{BidiAppendRequest, BidiAppendResponse, BidiRequestId};
use super::unary::{Call, CallError};

const PATH: &str = "/aiserver.v1.BidiService/BidiAppend";

/// As many as the official client keeps under way.
const IN_FLIGHT: usize = 16;

/// Before an append is sent again.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];

/// Sends what it is given, until one append fails or nothing more comes.
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
        let mut under_way = FuturesUnordered::new();
        let mut next = 0;
        loop {
            tokio::select! {
                message = messages.recv(), if under_way.len() < IN_FLIGHT => match message {
                    Some(message) => {
                        under_way.push(self.deliver(message, next));
                        next += 1;
                    }
                    None => break,
                },
                Some(sent) = under_way.next() => sent?,
            }
        }
        while let Some(sent) = under_way.next().await {
            sent?;
        }
        Ok(())
    }

    /// Appends a message. One that may not have arrived is sent again: by its number the
    /// server knows it.
    async fn deliver(&self, message: Bytes, seqno: i64) -> Result<(), CallError> {
        for pause in PAUSES {
            match self.append(message.clone(), seqno).await {
                Err(error) if is_passing(&error) => {
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

/// Whether the same append may work a little later. One that ran into its deadline has had
/// its time.
fn is_passing(error: &CallError) -> bool {
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

/// A minute, and a second more for every 128 KiB of hex.
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
        // The official client gave 60,002 ms to a request of 120 bytes.
        assert_eq!(deadline(120).as_millis(), 60_002);
        assert_eq!(deadline(64 * 1024).as_millis(), 61_000);
    }

    #[test]
    fn hex_is_lowercase() {
        assert_eq!(hex(&[0x00, 0xaf, 0x9]), "00af09");
    }
}
