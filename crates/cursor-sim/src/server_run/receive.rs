//! Receives client messages: matches answers to requests and enforces the protocol.

use std::collections::HashMap;

use serde_json::Value;

use super::pending_requests::Recipient;
use super::{PendingRequest, RunStop, ServerRun};
use crate::conversation_state::InjectedMessage;
use crate::inbox::ClientInput;
use crate::recording::{FrameContent, Side};
use crate::schema::{self, MessageJson};

impl ServerRun {
    /// Processes one input of the client.
    pub(super) fn receive(&mut self, input: ClientInput) -> Result<(), RunStop> {
        let (flags, payload) = match input {
            ClientInput::Message { flags, payload } => (flags, payload),
            ClientInput::Ended | ClientInput::Disconnected => return Err(RunStop::ClientLeft),
            ClientInput::Malformed(reason) => {
                return protocol_violation(format!("the client's stream is malformed: {reason}"));
            }
        };
        self.record(Side::Client, flags, FrameContent::Message(payload.clone()));
        let message = schema::decode(schema::CLIENT_MESSAGE, &payload)
            .map_err(|error| RunStop::Failed(error.to_string()))?;
        let kind = schema::kind(&message);
        let message = MessageJson::new(&message);
        let outer = kind.split('.').next().unwrap_or_default();
        let is_unclaimed = match outer {
            "execClientMessage" => self.exec_reply(message.part(outer))?,
            "execClientControlMessage" => self.exec_control(&message.present[outer])?,
            "kvClientMessage" => answer("kv", &mut self.blobs, message.part(outer))?,
            "interactionResponse" => answer("query", &mut self.queries, message.part(outer))?,
            "conversationAction" | "clientHeartbeat" => true,
            "runRequest" => return protocol_violation("a second runRequest on one run".into()),
            _ => return protocol_violation(format!("a client message of unknown kind {kind}")),
        };
        let injection = &message.present["conversationAction"]["injectContextAction"];
        if let Some(id) = injection["injectionId"].as_str() {
            let message = &injection["userContext"]["userMessage"];
            let part = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
            let message = InjectedMessage {
                id: part("messageId"),
                text: part("text"),
            };
            self.received_injections.insert(id.to_owned(), message);
        }
        if is_unclaimed {
            // Keep only the last heartbeat, because their number is unbounded.
            if kind == "clientHeartbeat" {
                self.unclaimed
                    .retain(|waiting| waiting.present.get("clientHeartbeat").is_none());
            }
            self.unclaimed.push_back(message);
        }
        Ok(())
    }

    /// Adds a reply to its exec; returns whether it is left for `expect_client`.
    fn exec_reply(&mut self, reply: MessageJson) -> Result<bool, RunStop> {
        let id = id_of(&reply.present);
        let case = answer_case(&reply.present);
        let Some(exec) = self.execs.get_mut(&id) else {
            return protocol_violation(format!(
                "a reply ({case}) to exec {id}, which was never sent"
            ));
        };
        if exec.is_finished() {
            return protocol_violation(format!("a reply ({case}) to exec {id}, which is over"));
        }
        let expected = exec.answer_case();
        if case != expected {
            return protocol_violation(format!(
                "a reply of kind {case} to exec {id} ({}), expected {expected}",
                exec.request_case
            ));
        }
        if !exec.is_stream() && !exec.replies.is_empty() {
            return protocol_violation(format!(
                "a second reply to exec {id} ({})",
                exec.request_case
            ));
        }
        exec.replies.push(reply);
        Ok(exec.recipient == Recipient::ExpectClient)
    }

    /// Applies a control message to its exec; returns whether it is left for `expect_client`.
    fn exec_control(&mut self, control: &Value) -> Result<bool, RunStop> {
        let Some((case, value)) = schema::case(control) else {
            return protocol_violation("an exec control message of unknown kind".into());
        };
        let id = id_of(value);
        let Some(exec) = self.execs.get_mut(&id) else {
            return protocol_violation(format!("{case} for exec {id}, which was never sent"));
        };
        match case {
            "streamClose" if exec.closed => {
                return protocol_violation(format!("a second streamClose of exec {id}"));
            }
            "streamClose" => {
                if exec.replies.is_empty() && exec.thrown.is_none() {
                    return protocol_violation(format!(
                        "streamClose of exec {id} before any reply"
                    ));
                }
                exec.closed = true;
            }
            "throw" if exec.is_finished() => {
                return protocol_violation(format!("a throw for exec {id}, which is over"));
            }
            "throw" => exec.thrown = Some(value.clone()),
            // Accepted after the end too, because the client's timer may fire once more while the
            // result is in flight.
            "heartbeat" => return Ok(false),
            _ => {
                return protocol_violation(format!(
                    "an exec control message of unknown kind {case}"
                ));
            }
        }
        Ok(exec.recipient == Recipient::ExpectClient)
    }
}

/// Stores the answer to a request; returns whether it is left for `expect_client`.
fn answer(
    channel: &str,
    requests: &mut HashMap<u32, PendingRequest>,
    reply: MessageJson,
) -> Result<bool, RunStop> {
    let id = id_of(&reply.present);
    let case = answer_case(&reply.present);
    let Some(request) = requests.get_mut(&id) else {
        return protocol_violation(format!(
            "an answer ({case}) to {channel} request {id}, which was never sent"
        ));
    };
    if request.answer.is_some() {
        return protocol_violation(format!(
            "a second answer ({case}) to {channel} request {id}"
        ));
    }
    if !request.answer_case.is_empty() && case != request.answer_case {
        return protocol_violation(format!(
            "an answer of kind {case} to {channel} request {id}, expected {}",
            request.answer_case
        ));
    }
    request.answer = Some(reply);
    Ok(request.recipient == Recipient::ExpectClient)
}

fn id_of(message: &Value) -> u32 {
    message["id"].as_u64().unwrap_or_default() as u32
}

/// Returns the case of a reply's oneof: the member that is not one of the other fields.
fn answer_case(reply: &Value) -> &str {
    const OTHERS: [&str; 5] = [
        "id",
        "execId",
        "localExecutionTimeMs",
        "hookAdditionalContexts",
        "unknownFields",
    ];
    reply
        .as_object()
        .and_then(|members| members.keys().find(|name| !OTHERS.contains(&name.as_str())))
        .map_or("empty", String::as_str)
}

fn protocol_violation<T>(what: String) -> Result<T, RunStop> {
    Err(RunStop::Failed(format!(
        "the client broke the protocol: {what}"
    )))
}
