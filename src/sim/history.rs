//! What was said before, read back from the client.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::sim::connect::{Code, ConnectError};
use crate::sim::request::RunRequest;
use crate::sim::schema;
use crate::sim::session::{Id, Session, Stop};

/// One message of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// `system`, `user` or `assistant`.
    pub(super) role: String,
    /// Its text.
    pub(super) text: String,
}

/// Reads the messages a state refers to. A client that lost one hears what the real
/// service says.
pub(super) async fn recall(
    session: &mut Session,
    request: &RunRequest,
    limit: Duration,
) -> Result<Vec<Message>, Stop> {
    let sent_along = blobs_sent_along(request);
    let roots = request.conversation_state()["rootPromptMessagesJson"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut messages = Vec::new();
    for root in &roots {
        let Some(id) = root.as_str().and_then(schema::from_base64) else {
            continue;
        };
        let blob = match sent_along.get(&id) {
            Some(blob) => Some(blob.clone()),
            None => session.get_blob(&id, Id::Next, limit).await?,
        };
        let Some(blob) = blob else {
            let error = ConnectError::new(Code::Internal, "Blob not found");
            session.end_with_error(&error).await?;
            let id = schema::hex(&id);
            return Err(Stop::Failed(format!("the client has lost blob {id}")));
        };
        messages.push(parse(&blob));
    }
    Ok(messages)
}

fn blobs_sent_along(request: &RunRequest) -> HashMap<Vec<u8>, Bytes> {
    let list = request.shown.present["preFetchedBlobs"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(|blob| {
            let id = schema::from_base64(blob["id"].as_str()?)?;
            let value = schema::from_base64(blob["value"].as_str().unwrap_or_default())?;
            Some((id, Bytes::from(value)))
        })
        .collect()
}

fn parse(blob: &[u8]) -> Message {
    let message: Value = serde_json::from_slice(blob).unwrap_or(Value::Null);
    let text = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    };
    Message {
        role: message["role"].as_str().unwrap_or_default().to_owned(),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_content_are_read() {
        let plain = parse(br#"{"role":"system","content":"be brief"}"#);
        assert_eq!(
            (plain.role.as_str(), plain.text.as_str()),
            ("system", "be brief")
        );
        let parts = parse(
            br#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
        );
        assert_eq!(parts.text, "a\nb");
    }
}
