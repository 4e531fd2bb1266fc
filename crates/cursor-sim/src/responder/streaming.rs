//! Streams thinking and text word by word and handles the client's actions meanwhile.

use std::time::Duration;

use serde_json::{Value, json};

use crate::schema::{MessageJson, single};
use crate::server_run::{Exec, RunStop, ServerRun, timed_out};

/// How long an exec may take; long, because the user may have to approve it.
const EXEC_LIMIT: Duration = Duration::from_secs(600);
/// Time between two words.
const WORD_INTERVAL: Duration = Duration::from_millis(10);

/// Streams output and collects the messages injected meanwhile.
#[derive(Debug, Default)]
pub(super) struct InputMonitor {
    /// Injected messages that were not answered yet.
    pub(super) injected: Vec<String>,
}

/// Why the turn ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The user cancelled it.
    Cancelled,
    Stopped(RunStop),
}

impl From<RunStop> for Interruption {
    fn from(stop: RunStop) -> Self {
        Self::Stopped(stop)
    }
}

/// Sends an update.
pub(super) async fn update(run: &mut ServerRun, case: &str, value: Value) -> Result<(), RunStop> {
    let update = single(case, value);
    run.send(&json!({ "interactionUpdate": update })).await
}

impl InputMonitor {
    pub(super) async fn stream_thinking(
        &mut self,
        run: &mut ServerRun,
        thought: &str,
    ) -> Result<(), Interruption> {
        for word in thought.split_inclusive(' ') {
            update(run, "thinkingDelta", json!({ "text": word })).await?;
            self.pause(run).await?;
        }
        let millis = thought.len();
        update(
            run,
            "thinkingCompleted",
            json!({ "thinkingDurationMs": millis }),
        )
        .await?;
        Ok(())
    }

    pub(super) async fn stream_text(
        &mut self,
        run: &mut ServerRun,
        text: &str,
    ) -> Result<(), Interruption> {
        for word in text.split_inclusive(' ') {
            update(run, "textDelta", json!({ "text": word })).await?;
            self.pause(run).await?;
        }
        Ok(())
    }

    /// Waits for the result of an exec; aborts it on cancellation.
    pub(super) async fn wait_for_exec(
        &mut self,
        run: &mut ServerRun,
        id: u32,
    ) -> Result<Exec, Interruption> {
        loop {
            let answered = run
                .wait_for(EXEC_LIMIT, |run| {
                    let done = run.exec(id).filter(|exec| exec.is_answered()).cloned();
                    match done {
                        Some(exec) => Some(Some(exec)),
                        None => run.has_unclaimed(is_action).then_some(None),
                    }
                })
                .await?
                .ok_or_else(|| timed_out(&format!("an answer to exec {id}"), EXEC_LIMIT))?;
            if let Some(exec) = answered {
                return Ok(exec);
            }
            if let Err(interruption) = self.handle_actions(run).await {
                run.abort_exec(id).await?;
                return Err(interruption);
            }
        }
    }

    /// Waits between two words and handles the client's actions.
    pub(super) async fn pause(&mut self, run: &mut ServerRun) -> Result<(), Interruption> {
        run.wait(WORD_INTERVAL).await?;
        self.handle_actions(run).await
    }

    /// Handles the client's actions: injections and cancellation.
    pub(super) async fn handle_actions(&mut self, run: &mut ServerRun) -> Result<(), Interruption> {
        while let Some(message) = run.claim(is_action) {
            let action = &message.present["conversationAction"];
            if action.get("cancelAction").is_some() {
                return Err(Interruption::Cancelled);
            }
            if let Some(injection) = action.get("injectContextAction") {
                self.accept_injection(run, injection).await?;
            }
        }
        Ok(())
    }

    async fn accept_injection(
        &mut self,
        run: &mut ServerRun,
        injection: &Value,
    ) -> Result<(), RunStop> {
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
            update(run, "contextInjectionState", change).await?;
        }
        self.injected.push(text.to_owned());
        Ok(())
    }
}

fn is_action(message: &MessageJson) -> bool {
    message.present.get("conversationAction").is_some()
}
