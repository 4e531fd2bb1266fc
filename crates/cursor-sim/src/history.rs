//! Reads the history of a conversation back from the client.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::connect::{Code, ConnectError};
use crate::request::RunRequest;
use crate::schema;
use crate::server_run::{MessageId, RunStop, ServerRun};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HistoryMessage {
    /// `system`, `user` or `assistant`.
    pub(super) role: String,
    pub(super) text: String,
}

/// Reads the messages a state refers to, all at once. If the client has lost one, ends the run with the error
/// of the real service.
pub(super) async fn read(
    run: &mut ServerRun,
    request: &RunRequest,
    limit: Duration,
) -> Result<Vec<HistoryMessage>, RunStop> {
    let prefetched = prefetched_blobs(request);
    let roots = request.conversation_state()["rootPromptMessagesJson"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let roots = roots.iter().filter_map(|root| root.as_str());
    let ids: Vec<Vec<u8>> = roots.filter_map(schema::from_base64).collect();
    let mut requests = HashMap::new();
    for id in ids.iter().filter(|id| !prefetched.contains_key(*id)) {
        if !requests.contains_key(id) {
            let request = run.start_get_blob(id, MessageId::Next).await?;
            requests.insert(id.clone(), request);
        }
    }
    let mut messages = Vec::new();
    for id in &ids {
        let blob = match requests.get(id) {
            Some(request) => run.finish_get_blob(*request, limit).await?,
            None => prefetched.get(id).cloned(),
        };
        let Some(blob) = blob else {
            let error = ConnectError::new(Code::Internal, "Blob not found");
            run.end_with_error(&error).await?;
            let id = schema::hex(id);
            return Err(RunStop::Failed(format!("the client has lost blob {id}")));
        };
        messages.push(parse(&blob));
    }
    Ok(messages)
}

fn prefetched_blobs(request: &RunRequest) -> HashMap<Vec<u8>, Bytes> {
    let list = request.message.present["preFetchedBlobs"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(|blob| {
            let id = schema::from_base64(blob["id"].as_str()?)?;
            let value = schema::from_base64(blob["value"].as_str().unwrap_or_default())?;
            Some((id, Bytes::from(value)))
        })
        .collect()
}

fn parse(blob: &[u8]) -> HistoryMessage {
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
    HistoryMessage {
        role: message["role"].as_str().unwrap_or_default().to_owned(),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_and_array_content_is_read() {
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
