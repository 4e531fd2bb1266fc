//! Plays the steps of a scenario on a run and checks the client's answers.

mod expect;
mod play_faults;
mod play_requests;
mod remaining_steps;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::connect::{Code, ConnectError};
use super::conversation::{self, SharedConversation};
use super::conversation_state;
use super::exchange::FullResponse;
use super::history;
use super::matcher::{self, excerpt};
use super::request::RunRequest;
use super::scenario::{
    Capture, ErrorPlan, ExecStep, Scenario, ScenarioStep, Script, ServerFault, StatusPlan,
    StepAction, StreamEnd,
};
use super::schema::{self, MessageJson};
use super::server_run::{RunStop, ServerRun, timed_out};

/// How often `expect_file` checks whether the file exists.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An exec that was left open, and the expected answer.
struct AwaitedExec {
    id: u32,
    step: ExecStep,
}

/// Plays one script on a run.
pub(super) struct Player<'a> {
    run: &'a mut ServerRun,
    scenario: &'a Scenario,
    request: &'a RunRequest,
    conversation: SharedConversation,
    open: HashMap<String, AwaitedExec>,
    token_details: Option<Value>,
    /// Tool results that later checkpoints contain, so that a resumed script can skip them.
    tool_results: Vec<String>,
    /// Calls of MCP tools that have a result, which later checkpoints name.
    tool_calls: Vec<Value>,
    /// What the run had added to the conversation before the last exec request.
    before_exec: Option<conversation_state::TurnContent>,
}

impl<'a> Player<'a> {
    /// Creates a player for this request.
    pub(super) fn new(
        run: &'a mut ServerRun,
        scenario: &'a Scenario,
        request: &'a RunRequest,
        conversation: SharedConversation,
    ) -> Self {
        Self {
            run,
            scenario,
            request,
            conversation,
            open: HashMap::new(),
            token_details: None,
            tool_results: Vec::new(),
            tool_calls: Vec::new(),
            before_exec: None,
        }
    }

    /// Plays a script to its end. A step returns `Break` if it ended the run.
    pub(super) async fn play(mut self, script: &Script) -> Result<(), RunStop> {
        if !matches!(
            script.steps.first().map(|step| &step.action),
            Some(StepAction::Status(_))
        ) {
            self.run.open(script.compression).await?;
        }
        self.run.set_injections(script.injections);
        let remaining = if script.resumable {
            self.remaining_steps(&script.steps).await?
        } else {
            (0..script.steps.len()).collect()
        };
        for index in remaining {
            let step = &script.steps[index];
            let played = match self.run.receive_available().await {
                // The step waits for the client to disconnect, so this is not a failure.
                Err(RunStop::ClientLeft) if expects_disconnect(&step.action) => {
                    return Err(RunStop::ClientLeft);
                }
                Err(stop) => Err(stop),
                Ok(()) => Box::pin(self.step(step)).await,
            };
            store_checkpoint(self.run, &self.conversation);
            match played {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(RunStop::Failed(reason)) => {
                    return Err(RunStop::Failed(format!(
                        "scenario {}: step {} ({}:{}): {reason}",
                        self.scenario.name,
                        index + 1,
                        self.scenario.file,
                        step.line
                    )));
                }
                Err(stop) => return Err(stop),
            }
        }
        if self.run.can_send_envelopes() && !self.run.turn_ended() {
            self.run
                .send(&json!({ "interactionUpdate": { "turnEnded": {} } }))
                .await?;
        }
        self.run.end().await
    }

    async fn step(&mut self, step: &ScenarioStep) -> Result<ControlFlow<()>, RunStop> {
        let limit = step.limit;
        match &step.action {
            StepAction::Send(message) => {
                let message = self.fill(message)?;
                self.run.send(&message).await?;
            }
            StepAction::SendBytes(payload) => self.run.send_bytes(payload.clone()).await?,
            StepAction::Deltas { text, count } => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": text } } });
                self.run.repeat(&message, *count).await?;
            }
            StepAction::Exec(exec) => self.exec(exec, limit).await?,
            StepAction::Await(names) => {
                for name in names {
                    if let Some(open) = self.open.remove(name) {
                        self.finish_exec(open.id, &open.step, limit).await?;
                    }
                }
            }
            StepAction::Abort(name) => {
                if let Some(id) = self.open.get(name).map(|open| open.id) {
                    self.run.abort_exec(id).await?;
                }
            }
            StepAction::KvSet(set) => self.kv_set(set, limit).await?,
            StepAction::KvGet(get) => self.kv_get(get, limit).await?,
            StepAction::Query(query) => self.query(query, limit).await?,
            StepAction::Checkpoint(plan) => self.checkpoint(plan, limit).await?,
            StepAction::TokenDetails(details) => self.token_details = Some(self.fill(details)?),
            StepAction::End(ending) => {
                self.end(ending).await?;
                return Ok(ControlFlow::Break(()));
            }
            StepAction::Status(plan) => {
                self.run
                    .respond_without_stream(status_response(plan))
                    .await?;
                return Ok(ControlFlow::Break(()));
            }
            StepAction::ExpectClient { pattern, capture } => {
                let pattern = self.fill(pattern)?;
                let found = self
                    .run
                    .wait_for(limit, |run| {
                        run.claim(|message| matcher::matches_message(&pattern, message).is_ok())
                    })
                    .await?
                    .ok_or_else(|| {
                        timed_out(
                            &format!("a client message like {}", excerpt(Some(&pattern))),
                            limit,
                        )
                    })?;
                self.capture(capture, &found)?;
            }
            StepAction::ExpectRequest(pattern) => {
                let pattern = self.fill(pattern)?;
                expect::check("the request", &pattern, &self.request.message)?;
            }
            StepAction::ExpectHeaders(pattern) => {
                let pattern = self.fill(pattern)?;
                let headers = self.run.headers();
                matcher::matches(&pattern, Some(&headers))
                    .map_err(|mismatch| RunStop::Failed(format!("the headers: {mismatch}")))?;
            }
            StepAction::ExpectHistory(pattern) => {
                let pattern = self.fill(pattern)?;
                let past = history::read(self.run, self.request, limit).await?;
                let texts: Value = past.into_iter().map(|message| message.text).collect();
                matcher::matches(&pattern, Some(&texts))
                    .map_err(|mismatch| RunStop::Failed(format!("the history: {mismatch}")))?;
            }
            StepAction::ExpectState => self.expect_state()?,
            StepAction::ExpectCancel => {
                return if self.run.wait_for_disconnect(limit).await? {
                    Err(RunStop::ClientLeft)
                } else {
                    Err(timed_out("the client to leave", limit))
                };
            }
            StepAction::ExpectFile(path) => {
                let path = self.fill(path)?;
                let path = Path::new(path.as_str().unwrap_or_default());
                let until = Instant::now() + limit;
                while !path.exists() {
                    if Instant::now() >= until {
                        return Err(timed_out(&format!("the file {}", path.display()), limit));
                    }
                    self.run.wait(FILE_POLL_INTERVAL).await?;
                }
            }
            StepAction::Together => self.run.start_buffering(),
            StepAction::Delay(time) => self.run.wait(*time).await?,
            StepAction::Silence(time) => {
                self.run.set_heartbeats(false);
                self.run.wait(*time).await?;
                self.run.set_heartbeats(true);
            }
            StepAction::Fault(fault) => return self.fault(fault).await,
        }
        Ok(ControlFlow::Continue(()))
    }

    fn fill(&self, value: &Value) -> Result<Value, RunStop> {
        conversation::lock(&self.conversation)
            .variables
            .fill(value)
            .map_err(|error| RunStop::Failed(error.to_string()))
    }

    fn capture(&self, captures: &[Capture], message: &MessageJson) -> Result<(), RunStop> {
        for capture in captures {
            let found = message
                .with_defaults
                .pointer(&capture.pointer)
                .ok_or_else(|| {
                    RunStop::Failed(format!(
                        "expected {} in {}, got nothing",
                        capture.pointer,
                        excerpt(Some(&message.present))
                    ))
                })?;
            conversation::lock(&self.conversation)
                .variables
                .set(&capture.name, found.clone());
        }
        Ok(())
    }

    fn expect_state(&self) -> Result<(), RunStop> {
        let conversation = conversation::lock(&self.conversation);
        match &conversation.checkpoint {
            Some(checkpoint) if *checkpoint == self.request.state => Ok(()),
            Some(checkpoint) => Err(RunStop::Failed(format!(
                "expected conversation_state {}, got {}",
                schema::hex(checkpoint),
                schema::hex(&self.request.state)
            ))),
            None => Err(RunStop::Failed("no checkpoint was sent yet".into())),
        }
    }

    async fn end(&mut self, ending: &StreamEnd) -> Result<(), RunStop> {
        match ending {
            StreamEnd::Success => self.run.end().await,
            StreamEnd::Error(plan) => {
                let error = connect_error(plan)?;
                self.run.end_with_error(&error).await
            }
        }
    }
}

/// Stores the last checkpoint that was sent, because the next request must contain it.
pub(super) fn store_checkpoint(run: &mut ServerRun, shared: &SharedConversation) {
    let Some(bytes) = run.take_checkpoint() else {
        return;
    };
    let json = schema::bytes_to_json(schema::CONVERSATION_STATE, &bytes, schema::Detail::Present);
    let mut conversation = conversation::lock(shared);
    conversation.checkpoint = Some(bytes);
    conversation.variables.set("CHECKPOINT", json);
}

/// Returns the first workspace of a request context.
pub(super) fn workspace(context: &Value) -> Option<&Value> {
    context.pointer("/env/workspacePaths/0")
}

fn expects_disconnect(action: &StepAction) -> bool {
    matches!(
        action,
        StepAction::ExpectCancel | StepAction::Fault(ServerFault::Stall)
    )
}

fn connect_error(plan: &ErrorPlan) -> Result<ConnectError, RunStop> {
    let mut error = ConnectError::new(plan.code, plan.message.clone());
    *error.metadata = plan.metadata.clone();
    if let Some(details) = &plan.details {
        let details =
            schema::error_details(details).map_err(|error| RunStop::Failed(error.to_string()))?;
        error.details.push(details);
    }
    Ok(error)
}

fn status_response(plan: &StatusPlan) -> FullResponse {
    let mut response = match &plan.body {
        None => FullResponse::new(plan.status, "application/json", ""),
        Some(Value::String(text)) => FullResponse::new(plan.status, "text/plain", text.clone()),
        Some(body) => FullResponse::json(plan.status, body),
    };
    for (name, value) in &plan.headers {
        response = response.with_header(name, value);
    }
    response
}

/// Returns the error that ends a run whose expectations were not met.
pub(super) fn failure(reason: &str) -> ConnectError {
    ConnectError::new(Code::PermissionDenied, reason)
}
