//! Thinking aloud, speaking word by word, and listening while doing so.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sim::schema::{Shown, single};
use crate::sim::session::{Exec, Session, Stop, late};

/// A person may have to approve a piece of work first.
const WORK_LIMIT: Duration = Duration::from_secs(600);
/// Time between two words.
const PACE: Duration = Duration::from_millis(10);

/// What the client said in between.
#[derive(Debug, Default)]
pub(super) struct Ears {
    /// Messages to the running turn, not yet mentioned.
    pub(super) heard: Vec<String>,
}

/// Something that ends the turn early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The person asked to stop.
    Cancelled,
    /// The run is over anyway.
    Stopped(Stop),
}

impl From<Stop> for Interruption {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// Sends an update.
pub(super) async fn update(session: &mut Session, case: &str, value: Value) -> Result<(), Stop> {
    let update = single(case, value);
    session.send(&json!({ "interactionUpdate": update })).await
}

impl Ears {
    /// Thinks aloud.
    pub(super) async fn think(
        &mut self,
        session: &mut Session,
        thought: &str,
    ) -> Result<(), Interruption> {
        for word in thought.split_inclusive(' ') {
            update(session, "thinkingDelta", json!({ "text": word })).await?;
            self.pause(session).await?;
        }
        let millis = thought.len();
        update(
            session,
            "thinkingCompleted",
            json!({ "thinkingDurationMs": millis }),
        )
        .await?;
        Ok(())
    }

    /// Speaks, and takes up what it hears meanwhile.
    pub(super) async fn say(
        &mut self,
        session: &mut Session,
        text: &str,
    ) -> Result<(), Interruption> {
        for word in text.split_inclusive(' ') {
            update(session, "textDelta", json!({ "text": word })).await?;
            self.pause(session).await?;
        }
        Ok(())
    }

    /// Waits for a piece of work and listens meanwhile.
    pub(super) async fn wait(
        &mut self,
        session: &mut Session,
        id: u32,
    ) -> Result<Exec, Interruption> {
        loop {
            let news = session
                .wait_for(WORK_LIMIT, |session| {
                    let done = session.exec(id).filter(|exec| exec.is_answered()).cloned();
                    match done {
                        Some(exec) => Some(Some(exec)),
                        None => session.has_unclaimed(is_action).then_some(None),
                    }
                })
                .await?
                .ok_or_else(|| late(&format!("an answer to exec {id}"), WORK_LIMIT))?;
            if let Some(exec) = news {
                return Ok(exec);
            }
            if let Err(interruption) = self.listen(session).await {
                session.abort_exec(id).await?;
                return Err(interruption);
            }
        }
    }

    /// Waits a moment and listens.
    pub(super) async fn pause(&mut self, session: &mut Session) -> Result<(), Interruption> {
        session.rest(PACE).await?;
        self.listen(session).await
    }

    /// Takes in actions of the client: steering and the wish to stop.
    pub(super) async fn listen(&mut self, session: &mut Session) -> Result<(), Interruption> {
        while let Some(message) = session.claim(is_action) {
            let action = &message.present["conversationAction"];
            if action.get("cancelAction").is_some() {
                return Err(Interruption::Cancelled);
            }
            if let Some(injection) = action.get("injectContextAction") {
                self.take_up(session, injection).await?;
            }
        }
        Ok(())
    }

    async fn take_up(&mut self, session: &mut Session, injection: &Value) -> Result<(), Stop> {
        let text = injection["userContext"]["userMessage"]["text"]
            .as_str()
            .or_else(|| injection["systemContext"]["content"].as_str())
            .unwrap_or_default();
        let states = [
            json!({ "queued": {} }),
            json!({ "delivered": { "step": 1 } }),
        ];
        for state in states {
            let change = json!({ "injectionId": injection["injectionId"], "state": state });
            update(session, "contextInjectionState", change).await?;
        }
        self.heard.push(text.to_owned());
        Ok(())
    }
}

fn is_action(message: &Shown) -> bool {
    message.present.get("conversationAction").is_some()
}
