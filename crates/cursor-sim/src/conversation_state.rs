//! Builds conversation states as Cursor does: messages and turns are blobs on the client, and the
//! state refers to them by hash.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::schema::{self, MessageCodecError};

/// The context window of the simulated models.
pub(super) const MAX_TOKENS: u64 = 200_000;

const SYSTEM_PROMPT: &str = "You are a simulated assistant.";

/// What one run adds to a conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct TurnContent {
    /// The user message; `None` if the run resumes an earlier turn.
    pub(super) user: Option<String>,
    /// The answer so far.
    pub(super) assistant: String,
    /// The tool results so far.
    pub(super) tool_results: Vec<String>,
    /// The user messages injected so far.
    pub(super) injected: Vec<String>,
    /// The id of the request.
    pub(super) request_id: String,
}

/// A state and the new blobs it refers to.
#[derive(Debug, Clone)]
pub(super) struct NewState {
    /// Blobs to store on the client before the state is sent.
    pub(super) blobs: Vec<Bytes>,
    /// The state, as JSON of `ConversationStateStructure`.
    pub(super) state: Value,
}

/// Returns the id of a blob.
pub(super) fn blob_id(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&Sha256::digest(data))
}

/// Estimates a token count: four characters per token.
pub(super) fn estimate_tokens(characters: usize) -> u64 {
    characters.div_ceil(4) as u64
}

/// Returns the state after a turn, based on the state before it.
pub(super) fn after_turn(
    before: &Value,
    turn: &TurnContent,
    token_details: Option<Value>,
) -> Result<NewState, MessageCodecError> {
    let mut blobs = Vec::new();
    let mut add_blob = |data: Bytes| {
        let id = schema::base64(&blob_id(&data));
        blobs.push(data);
        Value::String(id)
    };

    let mut roots = list(before, "rootPromptMessagesJson");
    if roots.is_empty() {
        roots.push(add_blob(message_json("system", SYSTEM_PROMPT)));
    }
    let mut turns = list(before, "turns");
    if let Some(user) = &turn.user {
        roots.push(add_blob(message_json("user", user)));
        let user = json!({ "text": user, "mode": "AGENT_MODE_AGENT" });
        let user = add_blob(schema::encode("agent.v1.UserMessage", &user)?);
        let mut steps = Vec::new();
        if !turn.assistant.is_empty() {
            let step = json!({ "assistantMessage": { "text": turn.assistant } });
            steps.push(add_blob(schema::encode(
                "agent.v1.ConversationStep",
                &step,
            )?));
        }
        let structure = json!({ "agentConversationTurn": {
            "userMessage": user, "steps": steps, "requestId": turn.request_id,
        }});
        turns.push(add_blob(schema::encode(
            "agent.v1.ConversationTurnStructure",
            &structure,
        )?));
    }
    if !turn.assistant.is_empty() {
        roots.push(add_blob(message_json("assistant", &turn.assistant)));
    }
    for result in &turn.tool_results {
        roots.push(add_blob(message_json("tool", result)));
    }

    for text in &turn.injected {
        roots.push(add_blob(message_json("user", text)));
    }

    let used = before["tokenDetails"]["usedTokens"]
        .as_u64()
        .unwrap_or(1_000)
        + estimate_tokens(turn.user.as_deref().unwrap_or_default().chars().count())
        + estimate_tokens(turn.assistant.chars().count());
    let token_details = token_details
        .unwrap_or_else(|| json!({ "usedTokens": used.min(MAX_TOKENS), "maxTokens": MAX_TOKENS }));
    let mut state = before.clone();
    if !state.is_object() {
        state = json!({});
    }
    state["rootPromptMessagesJson"] = roots.into();
    state["turns"] = turns.into();
    state["tokenDetails"] = token_details;
    state["mode"] = "AGENT_MODE_AGENT".into();
    Ok(NewState { blobs, state })
}

/// Returns the state of a conversation that is replaced by its summary.
pub(super) fn summarized(summary: &str) -> Result<NewState, MessageCodecError> {
    let mut new = after_turn(&json!({}), &TurnContent::default(), None)?;
    let note = message_json(
        "user",
        &format!("Summary of the conversation so far: {summary}"),
    );
    let blob = schema::encode(
        "agent.v1.ConversationSummary",
        &json!({ "summary": summary }),
    )?;
    if let Some(roots) = new.state["rootPromptMessagesJson"].as_array_mut() {
        roots.push(schema::base64(&blob_id(&note)).into());
    }
    new.state["summary"] = schema::base64(&blob_id(&blob)).into();
    new.state["selfSummaryCount"] = 1.into();
    new.blobs.extend([note, blob]);
    Ok(new)
}

fn list(state: &Value, name: &str) -> Vec<Value> {
    state[name].as_array().cloned().unwrap_or_default()
}

/// Returns a root prompt message in Cursor's format.
fn message_json(role: &str, text: &str) -> Bytes {
    let content = if role == "system" {
        json!(text)
    } else {
        json!([{ "type": "text", "text": text }])
    };
    Bytes::from(json!({ "role": role, "content": content }).to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_adds_messages_and_a_structure() {
        let turn = TurnContent {
            user: Some("hi".into()),
            assistant: "hello".into(),
            tool_results: Vec::new(),
            injected: Vec::new(),
            request_id: "r".into(),
        };
        let first = after_turn(&json!({}), &turn, None).unwrap();
        assert_eq!(
            first.state["rootPromptMessagesJson"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(first.state["turns"].as_array().unwrap().len(), 1);
        assert_eq!(first.blobs.len(), 6);
        schema::encode(schema::CONVERSATION_STATE, &first.state).unwrap();

        let second = after_turn(&first.state, &turn, None).unwrap();
        assert_eq!(
            second.state["rootPromptMessagesJson"]
                .as_array()
                .unwrap()
                .len(),
            5
        );
        assert_eq!(second.state["turns"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_resumed_turn_adds_only_its_answer() {
        let turn = TurnContent {
            user: None,
            assistant: "more".into(),
            tool_results: Vec::new(),
            injected: Vec::new(),
            request_id: "r".into(),
        };
        let before = json!({ "rootPromptMessagesJson": ["AA=="], "turns": ["AQ=="] });
        let new = after_turn(&before, &turn, None).unwrap();
        assert_eq!(
            new.state["rootPromptMessagesJson"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(new.state["turns"], json!(["AQ=="]));
    }
}
