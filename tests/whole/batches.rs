//! What comes in one piece of the wire: what of it is offered in one answer.

use cursor_sidecar::wire::envelope;
use cursor_sidecar::wire::proto::agent::v1::*;
use serde_json::json;

use crate::backend::{Simulator, Transport};
use crate::faults::playing;
use crate::talk::{Taken, Talk, tool};

/// Something the server says.
enum Said {
    Call(u32, &'static str),
    Text(&'static str),
}

impl Said {
    fn encode(&self) -> Vec<u8> {
        use agent_server_message::Message;
        let message = match self {
            Self::Call(id, name) => Message::ExecServerMessage(ExecServerMessage {
                id: *id,
                exec_id: format!("e{id}"),
                message: Some(exec_server_message::Message::McpArgs(McpArgs {
                    name: format!("pi__{name}"),
                    tool_call_id: format!("call-{name}"),
                    provider_identifier: "pi".into(),
                    tool_name: format!("pi__{name}"),
                    ..McpArgs::default()
                })),
                ..ExecServerMessage::default()
            }),
            Self::Text(text) => Message::InteractionUpdate(InteractionUpdate {
                message: Some(interaction_update::Message::TextDelta(TextDeltaUpdate {
                    text: (*text).into(),
                    ..TextDeltaUpdate::default()
                })),
                ..InteractionUpdate::default()
            }),
        };
        let message = AgentServerMessage {
            message: Some(message),
            ..AgentServerMessage::default()
        };
        envelope::encode_message(&message).to_vec()
    }
}

/// A host whose server says all of it at once, and nothing after.
fn told(said: &[Said]) -> (Simulator, Talk, Taken) {
    let bytes = said.iter().flat_map(Said::encode);
    let chunk: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    let steps = format!(r#"{{ garbage = "{chunk}" }}, {{ stall = true }}"#);
    let simulator = playing(Transport::H2c, &steps);
    let mut talk = Talk::new(&simulator, "s", &[]);
    talk.tools = vec![tool("a"), tool("b"), tool("c")];
    let taken = talk.say("go");
    (simulator, talk, taken)
}

fn offered(taken: &Taken) -> Vec<&str> {
    assert_eq!(taken.stop, "toolUse", "{taken:?}");
    taken.calls.iter().map(|call| call.name.as_str()).collect()
}

/// Others show the first call and keep the second back: defect 7 of `docs/recovery.md`.
#[test]
fn s34_calls_of_one_chunk_are_offered_in_one_answer() {
    let (_simulator, _, taken) = told(&[Said::Call(71, "a"), Said::Call(72, "b")]);
    assert_eq!(offered(&taken), ["a", "b"]);
}

/// Words between calls are said between them.
#[test]
fn words_between_calls_part_them() {
    let (_simulator, mut talk, taken) = told(&[
        Said::Text("Before. "),
        Said::Call(71, "a"),
        Said::Call(72, "b"),
        Said::Text("Between. "),
        Said::Call(73, "c"),
    ]);
    assert_eq!(taken.text, "Before. ");
    assert_eq!(offered(&taken), ["a", "b"]);
    for call in &taken.calls {
        talk.result(call, json!("done"));
    }
    let taken = talk.turn();
    assert_eq!(taken.text, "Between. ");
    assert_eq!(offered(&taken), ["c"]);
}
