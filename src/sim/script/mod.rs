//! Plays the steps of a scenario on a session and checks what comes back.

mod asks;
mod expect;
mod fault;
mod story;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::connect::{Code, ConnectError};
use super::conversation::{self, Shared};
use super::exchange::Answer;
use super::history;
use super::matcher::{self, show};
use super::memory;
use super::request::RunRequest;
use super::scenario::{
    Action, Capture, Ending, ErrorPlan, ExecStep, Fault, Scenario, Script, StatusPlan, Step,
    Telling,
};
use super::schema::{self, Shown};
use super::session::{Pulse, Session, Stop, late};

/// How often it is looked whether a file is there.
const LOOK: Duration = Duration::from_millis(10);

/// An exec that was left open, and what its answer must be.
struct OpenExec {
    id: u32,
    step: ExecStep,
}

/// Whether the script goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    Over,
}

/// One script being played.
pub(super) struct Player<'a> {
    session: &'a mut Session,
    scenario: &'a Scenario,
    request: &'a RunRequest,
    conversation: Shared,
    open: HashMap<String, OpenExec>,
    token_details: Option<Value>,
    /// Answers that a story goes by.
    heard: Vec<String>,
    /// What the run had added when a tool was last asked for.
    before_exec: Option<memory::Turn>,
}

impl<'a> Player<'a> {
    /// Gets ready to play for this request.
    pub(super) fn new(
        session: &'a mut Session,
        scenario: &'a Scenario,
        request: &'a RunRequest,
        conversation: Shared,
    ) -> Self {
        Self {
            session,
            scenario,
            request,
            conversation,
            open: HashMap::new(),
            token_details: None,
            heard: Vec::new(),
            before_exec: None,
        }
    }

    /// Plays a script to its end.
    pub(super) async fn play(mut self, script: &Script) -> Result<(), Stop> {
        if !matches!(
            script.steps.first().map(|step| &step.action),
            Some(Action::Status(_))
        ) {
            self.session.open(script.compression).await?;
        }
        self.session.set_injections(script.injections);
        let left = match script.telling {
            Telling::Afresh => (0..script.steps.len()).collect(),
            Telling::Onward => self.unheard(&script.steps).await?,
        };
        for index in left {
            let step = &script.steps[index];
            let played = match self.session.catch_up().await {
                // A client that leaves is just what this step waits for.
                Err(Stop::ClientLeft) if expects_leaving(&step.action) => {
                    return Err(Stop::ClientLeft);
                }
                Err(stop) => Err(stop),
                Ok(()) => Box::pin(self.step(step)).await,
            };
            remember_checkpoint(self.session, &self.conversation);
            match played {
                Ok(Flow::GoOn) => {}
                Ok(Flow::Over) => return Ok(()),
                Err(Stop::Failed(reason)) => {
                    return Err(Stop::Failed(format!(
                        "scenario {}: step {} ({}:{}): {reason}",
                        self.scenario.name,
                        index + 1,
                        self.scenario.file,
                        step.line
                    )));
                }
                Err(left) => return Err(left),
            }
        }
        if self.session.is_sound() && !self.session.turn_ended() {
            self.session
                .send(&json!({ "interactionUpdate": { "turnEnded": {} } }))
                .await?;
        }
        self.session.end().await
    }

    async fn step(&mut self, step: &Step) -> Result<Flow, Stop> {
        let limit = step.limit;
        match &step.action {
            Action::Send(message) => {
                let message = self.fill(message)?;
                self.session.send(&message).await?;
            }
            Action::SendBytes(payload) => self.session.send_bytes(payload.clone()).await?,
            Action::Deltas { text, count } => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": text } } });
                self.session.repeat(&message, *count).await?;
            }
            Action::Exec(exec) => self.exec(exec, limit).await?,
            Action::Await(names) => {
                for name in names {
                    if let Some(open) = self.open.remove(name) {
                        self.finish_exec(open.id, &open.step, limit).await?;
                    }
                }
            }
            Action::Abort(name) => {
                if let Some(id) = self.open.get(name).map(|open| open.id) {
                    self.session.abort_exec(id).await?;
                }
            }
            Action::KvSet(set) => self.kv_set(set, limit).await?,
            Action::KvGet(get) => self.kv_get(get, limit).await?,
            Action::Query(ask) => self.query(ask, limit).await?,
            Action::Checkpoint(plan) => self.checkpoint(plan, limit).await?,
            Action::TokenDetails(details) => self.token_details = Some(self.fill(details)?),
            Action::End(ending) => {
                self.end(ending).await?;
                return Ok(Flow::Over);
            }
            Action::Status(plan) => {
                self.session.refuse(status_answer(plan)).await?;
                return Ok(Flow::Over);
            }
            Action::ExpectClient { pattern, capture } => {
                let pattern = self.fill(pattern)?;
                let found = self
                    .session
                    .wait_for(limit, |session| {
                        session.claim(|message| matcher::fits(&pattern, message).is_ok())
                    })
                    .await?
                    .ok_or_else(|| {
                        late(
                            &format!("a client message like {}", show(Some(&pattern))),
                            limit,
                        )
                    })?;
                self.capture(capture, &found)?;
            }
            Action::ExpectRequest(pattern) => {
                let pattern = self.fill(pattern)?;
                expect::check("the request", &pattern, &self.request.shown)?;
            }
            Action::ExpectHeaders(pattern) => {
                let pattern = self.fill(pattern)?;
                let headers = self.session.headers();
                matcher::matches(&pattern, Some(&headers))
                    .map_err(|mismatch| Stop::Failed(format!("the headers: {mismatch}")))?;
            }
            Action::ExpectHistory(pattern) => {
                let pattern = self.fill(pattern)?;
                let past = history::recall(self.session, self.request, limit).await?;
                let texts: Value = past.into_iter().map(|message| message.text).collect();
                matcher::matches(&pattern, Some(&texts))
                    .map_err(|mismatch| Stop::Failed(format!("the history: {mismatch}")))?;
            }
            Action::ExpectState => self.expect_state()?,
            Action::ExpectCancel => {
                return match self.session.until_left(limit).await? {
                    true => Err(Stop::ClientLeft),
                    false => Err(late("the client to leave", limit)),
                };
            }
            Action::ExpectFile(path) => {
                let path = self.fill(path)?;
                let path = Path::new(path.as_str().unwrap_or_default());
                let until = Instant::now() + limit;
                while !path.exists() {
                    if Instant::now() >= until {
                        return Err(late(&format!("the file {}", path.display()), limit));
                    }
                    self.session.rest(LOOK).await?;
                }
            }
            Action::Together => self.session.hold(),
            Action::Delay(time) => self.session.rest(*time).await?,
            Action::Silence(time) => {
                self.session.set_pulse(Pulse::Still);
                self.session.rest(*time).await?;
                self.session.set_pulse(Pulse::Beating);
            }
            Action::Fault(fault) => return self.fault(fault).await,
        }
        Ok(Flow::GoOn)
    }

    fn fill(&self, value: &Value) -> Result<Value, Stop> {
        conversation::lock(&self.conversation)
            .variables
            .fill(value)
            .map_err(|error| Stop::Failed(error.to_string()))
    }

    fn capture(&self, captures: &[Capture], shown: &Shown) -> Result<(), Stop> {
        for capture in captures {
            let found = shown.full.pointer(&capture.pointer).ok_or_else(|| {
                Stop::Failed(format!(
                    "expected {} in {}, got nothing",
                    capture.pointer,
                    show(Some(&shown.present))
                ))
            })?;
            conversation::lock(&self.conversation)
                .variables
                .set(&capture.name, found.clone());
        }
        Ok(())
    }

    fn expect_state(&self) -> Result<(), Stop> {
        let conversation = conversation::lock(&self.conversation);
        match &conversation.checkpoint {
            Some(checkpoint) if *checkpoint == self.request.state => Ok(()),
            Some(checkpoint) => Err(Stop::Failed(format!(
                "expected conversation_state {}, got {}",
                schema::hex(checkpoint),
                schema::hex(&self.request.state)
            ))),
            None => Err(Stop::Failed("no checkpoint was sent yet".into())),
        }
    }

    async fn end(&mut self, ending: &Ending) -> Result<(), Stop> {
        match ending {
            Ending::Success => self.session.end().await,
            Ending::Error(plan) => {
                let error = connect_error(plan)?;
                self.session.end_with_error(&error).await
            }
        }
    }
}

/// Remembers the checkpoint that was sent last: the next request must carry it.
pub(super) fn remember_checkpoint(session: &mut Session, shared: &Shared) {
    let Some(bytes) = session.take_checkpoint() else {
        return;
    };
    let shown = schema::bytes_to_json(schema::CONVERSATION_STATE, &bytes, schema::Detail::Present);
    let mut conversation = conversation::lock(shared);
    conversation.checkpoint = Some(bytes);
    conversation.variables.set("CHECKPOINT", shown);
}

/// The first workspace of a request context.
pub(super) fn workspace(context: &Value) -> Option<&Value> {
    context.pointer("/env/workspacePaths/0")
}

fn expects_leaving(action: &Action) -> bool {
    matches!(action, Action::ExpectCancel | Action::Fault(Fault::Stall))
}

fn connect_error(plan: &ErrorPlan) -> Result<ConnectError, Stop> {
    let mut error = ConnectError::new(plan.code, plan.message.clone());
    *error.metadata = plan.metadata.clone();
    if let Some(details) = &plan.details {
        let name = "aiserver.v1.ErrorDetails";
        let bytes =
            schema::encode(name, details).map_err(|error| Stop::Failed(error.to_string()))?;
        let value = schema::base64(&bytes);
        error.details.push(json!({
            "type": name,
            "value": value.trim_end_matches('='),
            "debug": details,
        }));
    }
    Ok(error)
}

fn status_answer(plan: &StatusPlan) -> Answer {
    let mut answer = match &plan.body {
        None => Answer::new(plan.status, "application/json", ""),
        Some(Value::String(text)) => Answer::new(plan.status, "text/plain", text.clone()),
        Some(body) => Answer::json(plan.status, body),
    };
    for (name, value) in &plan.headers {
        answer = answer.with_header(name, value);
    }
    answer
}

/// The error that ends a run whose expectations were not met.
pub(super) fn failure(reason: &str) -> ConnectError {
    ConnectError::new(Code::PermissionDenied, reason)
}
