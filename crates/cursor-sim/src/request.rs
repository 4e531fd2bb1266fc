//! The request that starts a run.

use bytes::Bytes;
use serde_json::Value;

use super::schema::{self, MessageCodecError, MessageJson};

#[derive(Debug, Clone)]
pub(super) struct RunRequest {
    /// `AgentRunRequest` as JSON.
    pub(super) message: MessageJson,
    /// Its conversation state, byte for byte.
    pub(super) state: Bytes,
}

impl RunRequest {
    /// Decodes the first client message; returns `None` if it is not a run request.
    pub(super) fn read(payload: &[u8]) -> Result<Option<Self>, MessageCodecError> {
        let message = schema::decode(schema::CLIENT_MESSAGE, payload)?;
        if schema::kind(&message) != "runRequest" {
            return Ok(None);
        }
        let state = bytes_field(payload, 1)
            .and_then(|request| bytes_field(request, 1))
            .unwrap_or_default();
        Ok(Some(Self {
            message: MessageJson::new(&message).part("runRequest"),
            state: Bytes::copy_from_slice(state),
        }))
    }

    /// Returns the text of the user message, if the action is one.
    pub(super) fn user_text(&self) -> Option<&str> {
        self.message.present["action"]["userMessageAction"]["userMessage"]["text"].as_str()
    }

    /// Returns the case of the action, empty if there is none.
    pub(super) fn action(&self) -> &str {
        // An action has other members besides its case, but only the case is named `…Action`.
        self.message.present["action"]
            .as_object()
            .and_then(|action| action.keys().find(|name| name.ends_with("Action")))
            .map_or("", String::as_str)
    }

    /// Returns a string member.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.message.present[name].as_str()
    }

    /// Returns the conversation state as JSON.
    pub(super) fn conversation_state(&self) -> &Value {
        &self.message.present["conversationState"]
    }

    /// Returns the request context, if the action has one.
    pub(super) fn context(&self) -> Option<&Value> {
        self.message.present["action"][self.action()].get("requestContext")
    }
}

/// Returns the last length-delimited field with this number in an encoded message.
pub(super) fn bytes_field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    let mut found = None;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => drop(varint(&mut message)?),
            1 => message = message.get(8..)?,
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let value = message.get(..length)?;
                message = message.get(length..)?;
                if tag >> 3 == number {
                    found = Some(value);
                }
            }
            5 => message = message.get(4..)?,
            _ => return None,
        }
    }
    found
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A follow-up request recorded from the official client.
    const FOLLOW_UP: &str = "0ace010a4f0a2041e68246ea1b511cf757ad04038e4b14c09b8ae34a9a1a4391db897108d24fcb2a0708d20910c09a0c4220099294ea0de554a4f8bfd080e17948e144dfce32e5ba106868b2ec69295bacf7500112180a160a140a1240666f6c6c6f77757020616e64207468656e22002a2a6167656e742d30326563306465342d346134612d343665372d626363372d6630653165306234326136374a0c0a0a636f6d706f7365722d32ca012466353238303165362d376635352d343565382d396463652d353934333762303533633562";

    #[test]
    fn the_state_is_kept_byte_for_byte() {
        let payload = schema::from_hex(FOLLOW_UP).unwrap();
        let request = RunRequest::read(&payload).unwrap().unwrap();
        assert_eq!(request.user_text(), Some("@followup and then"));
        assert_eq!(request.state.len(), 0x4f);
        assert_eq!(
            schema::encode(schema::CONVERSATION_STATE, request.conversation_state()).unwrap(),
            request.state
        );
    }

    #[test]
    fn another_message_is_not_a_run_request() {
        assert!(RunRequest::read(&[0x3a, 0x00]).unwrap().is_none());
    }
}
