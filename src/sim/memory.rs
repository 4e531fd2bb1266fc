//! A conversation as Cursor keeps it: messages and turns in blobs on the client, a state
//! that refers to them by hash.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::schema::{self, SchemaError};

/// The window the simulated models have.
pub(super) const MAX_TOKENS: u64 = 200_000;

const SYSTEM_PROMPT: &str = "You are a simulated assistant.";

/// What one run adds to a conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    /// What the person said; nothing if the run resumes an earlier turn.
    pub(super) user: Option<String>,
    /// What was answered so far.
    pub(super) assistant: String,
    /// What tools gave meanwhile.
    pub(super) heard: Vec<String>,
    /// What the person said into it.
    pub(super) injected: Vec<String>,
    /// The request.
    pub(super) request_id: String,
}

/// A state and the blobs it refers to.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// Blobs the client must have first.
    pub(super) blobs: Vec<Bytes>,
    /// The state, as JSON of `ConversationStateStructure`.
    pub(super) state: Value,
}

/// The id of a blob.
pub(super) fn blob_id(data: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&Sha256::digest(data))
}

/// A rough count: four characters a token.
pub(super) fn tokens(characters: usize) -> u64 {
    characters.div_ceil(4) as u64
}

/// The state after a turn on top of the state before it.
pub(super) fn draft(
    before: &Value,
    turn: &Turn,
    token_details: Option<Value>,
) -> Result<Draft, SchemaError> {
    let mut blobs = Vec::new();
    let mut keep = |data: Bytes| {
        let id = schema::base64(&blob_id(&data));
        blobs.push(data);
        Value::String(id)
    };

    let mut roots = list(before, "rootPromptMessagesJson");
    if roots.is_empty() {
        roots.push(keep(message_json("system", SYSTEM_PROMPT)));
    }
    let mut turns = list(before, "turns");
    if let Some(user) = &turn.user {
        roots.push(keep(message_json("user", user)));
        let user = json!({ "text": user, "mode": "AGENT_MODE_AGENT" });
        let user = keep(schema::encode("agent.v1.UserMessage", &user)?);
        let mut steps = Vec::new();
        if !turn.assistant.is_empty() {
            let step = json!({ "assistantMessage": { "text": turn.assistant } });
            steps.push(keep(schema::encode("agent.v1.ConversationStep", &step)?));
        }
        let structure = json!({ "agentConversationTurn": {
            "userMessage": user, "steps": steps, "requestId": turn.request_id,
        }});
        turns.push(keep(schema::encode(
            "agent.v1.ConversationTurnStructure",
            &structure,
        )?));
    }
    if !turn.assistant.is_empty() {
        roots.push(keep(message_json("assistant", &turn.assistant)));
    }
    for result in &turn.heard {
        roots.push(keep(message_json("tool", result)));
    }

    for words in &turn.injected {
        roots.push(keep(message_json("user", words)));
    }

    let used = before["tokenDetails"]["usedTokens"]
        .as_u64()
        .unwrap_or(1_000)
        + tokens(turn.user.as_deref().unwrap_or_default().chars().count())
        + tokens(turn.assistant.chars().count());
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
    Ok(Draft { blobs, state })
}

/// The state of a conversation that was replaced by its summary.
pub(super) fn summarized(summary: &str) -> Result<Draft, SchemaError> {
    let mut draft = draft(&json!({}), &Turn::default(), None)?;
    let note = message_json(
        "user",
        &format!("Summary of the conversation so far: {summary}"),
    );
    let blob = schema::encode(
        "agent.v1.ConversationSummary",
        &json!({ "summary": summary }),
    )?;
    if let Some(roots) = draft.state["rootPromptMessagesJson"].as_array_mut() {
        roots.push(schema::base64(&blob_id(&note)).into());
    }
    draft.state["summary"] = schema::base64(&blob_id(&blob)).into();
    draft.state["selfSummaryCount"] = 1.into();
    draft.blobs.extend([note, blob]);
    Ok(draft)
}

fn list(state: &Value, name: &str) -> Vec<Value> {
    state[name].as_array().cloned().unwrap_or_default()
}

/// A root prompt message, as Cursor writes it.
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
        let turn = Turn {
            user: Some("hi".into()),
            assistant: "hello".into(),
            heard: Vec::new(),
            injected: Vec::new(),
            request_id: "r".into(),
        };
        let first = draft(&json!({}), &turn, None).unwrap();
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

        let second = draft(&first.state, &turn, None).unwrap();
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
        let turn = Turn {
            user: None,
            assistant: "more".into(),
            heard: Vec::new(),
            injected: Vec::new(),
            request_id: "r".into(),
        };
        let before = json!({ "rootPromptMessagesJson": ["AA=="], "turns": ["AQ=="] });
        let draft = draft(&before, &turn, None).unwrap();
        assert_eq!(
            draft.state["rootPromptMessagesJson"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(draft.state["turns"], json!(["AQ=="]));
    }
}
