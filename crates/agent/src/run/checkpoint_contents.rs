//! What a checkpoint says about itself: which calls and messages it names.
//!
//! A checkpoint is opaque and may be older than it arrives. Its turns name the calls of tools with
//! their results and the messages of the user by id, in blobs that the server has stored here. What
//! it names is in it for certain. What it does not name is not proof of anything, because a server
//! may store its turns in another form; then the order of arrival counts
//! ([`EffectLog::checkpoint`](crate::effect_log::EffectLog), [`Inbox`](crate::inbox)).

use std::collections::BTreeSet;

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::blobs::Blobs;
use cursor_proto::agent::v1::conversation_turn_structure::Turn;
use cursor_proto::agent::v1::{
    AgentConversationTurnStructure, ConversationTurnStructure, UserMessage,
};
use cursor_proto::raw_fields::{Field, fields};
use cursor_proto::state::{self, PendingCalls};

/// The most turns, and steps of turns, that are read for one checkpoint, the newest first. A stream
/// adds to the last turn and starts one for each message that is injected.
const MAX_TURNS: usize = 16;
const MAX_READ: usize = 256;

const TURNS: u32 = 8;
const ANSWERED_QUESTIONS: u32 = 34;
const USER_MESSAGE_IDS: u32 = 38;
/// `ConversationStep.tool_call`.
const TOOL_CALL: u32 = 2;
/// `ToolCall.tool_call_id`.
const TOOL_CALL_ID: u32 = 57;
/// `ToolCall.hook_additional_contexts`; every other message in a `ToolCall` is a kind of tool.
const HOOK_CONTEXTS: u32 = 54;
/// The result in the message of every kind of tool.
const RESULT: u32 = 2;

/// The calls and messages that a checkpoint names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CheckpointContents {
    /// Calls without a result.
    pub(crate) pending: PendingCalls,
    /// Ids of calls with their result.
    pub(crate) finished: BTreeSet<String>,
    /// Ids of user messages.
    pub(crate) messages: Vec<String>,
}

/// What a checkpoint says about the result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultEvidence {
    Included,
    Missing,
    Unknown,
}

impl CheckpointContents {
    /// Returns what the checkpoint says about the result of a call.
    pub(crate) fn result_of(&self, call: &str) -> ResultEvidence {
        if self.finished.contains(call) {
            ResultEvidence::Included
        } else if self.pending.names(call) {
            ResultEvidence::Missing
        } else {
            ResultEvidence::Unknown
        }
    }
}

/// Reads the checkpoints of one stream. Each blob is read once: what it names stays named.
#[derive(Debug, Default)]
pub(super) struct CheckpointReader {
    /// Digests of the ids of blobs that were read. An id is a part of its checkpoint or blob and would
    /// keep all of it in memory.
    read: BTreeSet<[u8; 32]>,
}

impl CheckpointReader {
    /// Returns what a checkpoint names, without what earlier checkpoints of the stream named.
    pub(super) fn read(&mut self, state: &Bytes, blobs: &dyn Blobs) -> CheckpointContents {
        let mut contents = CheckpointContents {
            pending: state::pending(state),
            ..CheckpointContents::default()
        };
        let mut turns = Vec::new();
        for field in fields(state.clone()).filter_map(Result::ok) {
            match field.number {
                TURNS => turns.extend(field.value.bytes().cloned()),
                ANSWERED_QUESTIONS => contents.finished.extend(text(&field)),
                USER_MESSAGE_IDS => contents.messages.extend(text(&field)),
                _ => {}
            }
        }
        let mut left = MAX_READ;
        let new = |id: &&Bytes| !self.read.contains(&digest(id));
        let turns: Vec<Bytes> = (turns.iter().rev().take_while(new).take(MAX_TURNS))
            .cloned()
            .collect();
        for id in turns {
            if let Some(turn) = blob(blobs, &id)
                && let Ok(turn) = ConversationTurnStructure::decode(turn)
                && let Some(Turn::AgentConversationTurn(turn)) = turn.turn
            {
                self.read_turn(turn, blobs, &mut left, &mut contents);
            }
            self.read.insert(digest(&id));
        }
        contents
    }

    fn read_turn(
        &mut self,
        turn: AgentConversationTurnStructure,
        blobs: &dyn Blobs,
        left: &mut usize,
        contents: &mut CheckpointContents,
    ) {
        contents.messages.extend(turn.user_message_id);
        if self.read.insert(digest(&turn.user_message))
            && let Some(message) = blob(blobs, &turn.user_message)
            && let Ok(message) = UserMessage::decode(message)
        {
            contents.messages.push(message.message_id);
        }
        for step in turn.steps.into_iter().rev() {
            if *left == 0 || !self.read.insert(digest(&step)) {
                break;
            }
            *left -= 1;
            if let Some(data) = blob(blobs, &step) {
                contents.finished.extend(finished_call(data));
            }
        }
    }
}

fn digest(id: &Bytes) -> [u8; 32] {
    Sha256::digest(id).into()
}

/// Returns the id of the call in a step of a turn, if the step has its result.
fn finished_call(step: Bytes) -> Option<String> {
    let mut step = fields(step).filter_map(Result::ok);
    let call = step.find(|field| field.number == TOOL_CALL)?;
    let (mut id, mut has_result) = (None, false);
    for field in fields(call.value.bytes()?.clone()).filter_map(Result::ok) {
        if field.number == TOOL_CALL_ID {
            id = text(&field);
        } else if let (true, Some(tool)) = (field.number != HOOK_CONTEXTS, field.value.bytes()) {
            let mut parts = fields(tool.clone()).filter_map(Result::ok);
            has_result |= parts.any(|part| part.number == RESULT);
        }
    }
    id.filter(|id| has_result && !id.is_empty())
}

fn text(field: &Field) -> Option<String> {
    let bytes = field.value.bytes()?;
    String::from_utf8(bytes.to_vec()).ok()
}

fn blob(blobs: &dyn Blobs, id: &Bytes) -> Option<Bytes> {
    blobs.get(id).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::blobs::MemoryBlobs;
    use cursor_proto::agent::v1::{
        ConversationStateStructure, ConversationStep, HookAdditionalContext, McpToolCall,
        McpToolResult, PiBashToolCall, PiBashToolResult, ToolCall, conversation_step, tool_call,
    };

    fn step(blobs: &MemoryBlobs, id: &str, has_result: bool) -> Bytes {
        let call = ToolCall {
            tool: Some(tool_call::Tool::McpToolCall(McpToolCall {
                result: has_result.then(McpToolResult::default),
                ..McpToolCall::default()
            })),
            tool_call_id: Some(id.into()),
            ..ToolCall::default()
        };
        let step = ConversationStep {
            message: Some(conversation_step::Message::ToolCall(call)),
        };
        store(blobs, id, step.encode_to_vec())
    }

    fn store(blobs: &MemoryBlobs, id: &str, data: Vec<u8>) -> Bytes {
        let id = Bytes::copy_from_slice(id.as_bytes());
        blobs.set(&id, data.into()).unwrap();
        id
    }

    fn state(blobs: &MemoryBlobs, steps: Vec<Bytes>) -> Bytes {
        let message = UserMessage {
            message_id: "m1".into(),
            ..UserMessage::default()
        };
        let turn = AgentConversationTurnStructure {
            user_message: store(blobs, "message", message.encode_to_vec()),
            steps,
            ..AgentConversationTurnStructure::default()
        };
        let turn = ConversationTurnStructure {
            turn: Some(Turn::AgentConversationTurn(turn)),
        };
        let turn = store(blobs, "turn", turn.encode_to_vec());
        let state = ConversationStateStructure {
            turns: vec![Bytes::from_static(b"not stored here"), turn],
            pending_tool_calls: vec!["c3".into()],
            ..ConversationStateStructure::default()
        };
        let mut state = state.encode_to_vec();
        // Fields 34 and 38, which the schema of this crate does not declare.
        state.extend(b"\x92\x02\x02q1\xb2\x02\x02m2");
        state.into()
    }

    #[test]
    fn calls_with_results_and_messages_are_named() {
        let blobs = MemoryBlobs::default();
        let steps = vec![step(&blobs, "c1", true), step(&blobs, "c2", false)];
        let state = state(&blobs, steps);
        let contents = CheckpointReader::default().read(&state, &blobs);
        let of = |call| contents.result_of(call);
        assert_eq!(of("c1"), ResultEvidence::Included);
        assert_eq!(of("q1"), ResultEvidence::Included);
        assert_eq!(of("c2"), ResultEvidence::Unknown, "it has no result");
        assert_eq!(of("c3"), ResultEvidence::Missing);
        assert_eq!(of(""), ResultEvidence::Unknown);
        assert_eq!(contents.messages, ["m2", "m1"]);
    }

    /// Regression: every checkpoint of a stream stayed in memory until the stream ended.
    #[test]
    fn a_checkpoint_that_was_read_is_not_kept() {
        let blobs = MemoryBlobs::default();
        let steps = vec![step(&blobs, "c1", true)];
        let state = state(&blobs, steps);
        let mut reader = CheckpointReader::default();
        drop(reader.read(&state, &blobs));
        assert!(state.is_unique());
        assert_eq!(reader.read.len(), 4, "two turns, a message and a step");
    }

    #[test]
    fn every_kind_of_tool_has_a_result_and_what_a_hook_adds_is_none() {
        let step = |call: ToolCall| {
            let step = ConversationStep {
                message: Some(conversation_step::Message::ToolCall(ToolCall {
                    tool_call_id: Some("c".into()),
                    ..call
                })),
            };
            finished_call(step.encode_to_vec().into())
        };
        let bash = |result| tool_call::Tool::PiBashToolCall(PiBashToolCall { args: None, result });
        let done = ToolCall {
            tool: Some(bash(Some(PiBashToolResult::default()))),
            ..ToolCall::default()
        };
        assert_eq!(step(done).as_deref(), Some("c"));
        let hooked = ToolCall {
            tool: Some(bash(None)),
            hook_additional_contexts: vec![HookAdditionalContext {
                content: "from a hook".into(),
                ..HookAdditionalContext::default()
            }],
            ..ToolCall::default()
        };
        assert_eq!(step(hooked), None);
    }

    #[test]
    fn a_turn_that_cannot_be_read_names_nothing() {
        let blobs = MemoryBlobs::default();
        for turn in [b"\x0a\x05x".as_slice(), b"", b"{\"json\":1}"] {
            store(&blobs, "turn", turn.into());
            let state = ConversationStateStructure {
                turns: vec![Bytes::from_static(b"turn")],
                ..ConversationStateStructure::default()
            };
            let state = Bytes::from(state.encode_to_vec());
            let contents = CheckpointReader::default().read(&state, &blobs);
            assert_eq!(contents, CheckpointContents::default());
        }
    }
}
