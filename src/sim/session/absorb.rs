//! What the client sends: finds the question it answers and insists on the protocol.

use std::collections::HashMap;

use serde_json::Value;

use super::asks::Asker;
use super::{Ask, Session, Stop};
use crate::sim::inbox::Inbound;
use crate::sim::recording::{Content, Side};
use crate::sim::schema::{self, Shown};

/// What becomes of a message.
enum Fate {
    /// It was the answer somebody waits for, or needs none.
    Taken,
    /// It is left for `expect_client`.
    Unclaimed,
}

impl Session {
    pub(super) fn absorb(&mut self, inbound: Inbound) -> Result<(), Stop> {
        let (flags, payload) = match inbound {
            Inbound::Message { flags, payload } => (flags, payload),
            Inbound::Ended | Inbound::Gone => return Err(Stop::ClientLeft),
            Inbound::Malformed(reason) => {
                return broken(format!("the client's stream is malformed: {reason}"));
            }
        };
        self.record(Side::Client, flags, Content::Message(payload.clone()));
        let message = schema::decode(schema::CLIENT_MESSAGE, &payload)
            .map_err(|error| Stop::Failed(error.to_string()))?;
        let kind = schema::kind(&message);
        let shown = Shown::new(&message);
        let outer = kind.split('.').next().unwrap_or_default();
        let fate = match outer {
            "execClientMessage" => self.exec_reply(shown.part(outer))?,
            "execClientControlMessage" => self.exec_control(&shown.present[outer])?,
            "kvClientMessage" => answer("kv", &mut self.blobs, shown.part(outer))?,
            "interactionResponse" => answer("query", &mut self.queries, shown.part(outer))?,
            "conversationAction" | "clientHeartbeat" => Fate::Unclaimed,
            "runRequest" => return broken("a second runRequest on one run".into()),
            _ => return broken(format!("a client message of unknown kind {kind}")),
        };
        if matches!(fate, Fate::Unclaimed) {
            // Heartbeats come for ever; one of them is enough to be waited for.
            if kind == "clientHeartbeat" {
                self.unclaimed
                    .retain(|waiting| waiting.present.get("clientHeartbeat").is_none());
            }
            self.unclaimed.push_back(shown);
        }
        Ok(())
    }

    fn exec_reply(&mut self, reply: Shown) -> Result<Fate, Stop> {
        let id = id_of(&reply.present);
        let case = answer_case(&reply.present);
        let Some(exec) = self.execs.get_mut(&id) else {
            return broken(format!(
                "a reply ({case}) to exec {id}, which was never sent"
            ));
        };
        if exec.is_over() {
            return broken(format!("a reply ({case}) to exec {id}, which is over"));
        }
        let wanted = exec.answer_case();
        if case != wanted {
            return broken(format!(
                "a reply of kind {case} to exec {id} ({}), expected {wanted}",
                exec.asked
            ));
        }
        if !exec.streams() && !exec.replies.is_empty() {
            return broken(format!("a second reply to exec {id} ({})", exec.asked));
        }
        exec.replies.push(reply);
        Ok(fate(exec.asker))
    }

    fn exec_control(&mut self, control: &Value) -> Result<Fate, Stop> {
        let Some((case, value)) = schema::case(control) else {
            return broken("an exec control message of unknown kind".into());
        };
        let id = id_of(value);
        let Some(exec) = self.execs.get_mut(&id) else {
            return broken(format!("{case} for exec {id}, which was never sent"));
        };
        match case {
            "streamClose" if exec.closed => {
                return broken(format!("a second streamClose of exec {id}"));
            }
            "streamClose" => {
                if exec.replies.is_empty() && exec.thrown.is_none() {
                    return broken(format!("streamClose of exec {id} before any reply"));
                }
                exec.closed = true;
            }
            "throw" if exec.is_over() => {
                return broken(format!("a throw for exec {id}, which is over"));
            }
            "throw" => exec.thrown = Some(value.clone()),
            // Its timer may fire once more while the result is under way.
            "heartbeat" => return Ok(Fate::Taken),
            _ => return broken(format!("an exec control message of unknown kind {case}")),
        }
        Ok(fate(exec.asker))
    }
}

fn fate(asker: Asker) -> Fate {
    match asker {
        Asker::Step => Fate::Taken,
        Asker::Raw => Fate::Unclaimed,
    }
}

fn answer(channel: &str, asks: &mut HashMap<u32, Ask>, reply: Shown) -> Result<Fate, Stop> {
    let id = id_of(&reply.present);
    let case = answer_case(&reply.present);
    let Some(ask) = asks.get_mut(&id) else {
        return broken(format!(
            "an answer ({case}) to {channel} request {id}, which was never sent"
        ));
    };
    if ask.answer.is_some() {
        return broken(format!(
            "a second answer ({case}) to {channel} request {id}"
        ));
    }
    if !ask.answer_case.is_empty() && case != ask.answer_case {
        return broken(format!(
            "an answer of kind {case} to {channel} request {id}, expected {}",
            ask.answer_case
        ));
    }
    ask.answer = Some(reply);
    Ok(fate(ask.asker))
}

fn id_of(message: &Value) -> u32 {
    message["id"].as_u64().unwrap_or_default() as u32
}

/// The case of a reply's oneof: the member that is none of the others.
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

fn broken<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Failed(format!(
        "the client broke the protocol: {what}"
    )))
}
