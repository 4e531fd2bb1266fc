//! Plays the steps of a scenario on a session and checks what comes back.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::connect::{Code, ConnectError};
use super::conversation::{self, NamedBlob, Shared};
use super::exchange::{Answer, Reply};
use super::matcher::{self, show};
use super::memory::{self, Turn};
use super::request::RunRequest;
use super::scenario::{
    Action, Ask, Blob, BlobKey, Capture, CheckpointPlan, Ending, ErrorPlan, ExecStep, Fault, KvGet,
    KvSet, Presence, Scenario, Script, StatusPlan, Step, Wait,
};
use super::schema::{self, Shown};
use super::session::{Exec, Pulse, Session, Stop, late, prefix};

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
        for (index, step) in script.steps.iter().enumerate() {
            let played = match self.session.catch_up().await {
                // A client that leaves is just what this step waits for.
                Err(Stop::ClientLeft) if expects_leaving(&step.action) => {
                    return Err(Stop::ClientLeft);
                }
                Err(stop) => Err(stop),
                Ok(()) => Box::pin(self.step(step)).await,
            };
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
        if !self.session.turn_ended() {
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
                check("the request", &pattern, &self.request.shown)?;
            }
            Action::ExpectHeaders(pattern) => {
                let pattern = self.fill(pattern)?;
                let headers = self.session.headers();
                matcher::matches(&pattern, Some(&headers))
                    .map_err(|mismatch| Stop::Failed(format!("the headers: {mismatch}")))?;
            }
            Action::ExpectState => self.expect_state()?,
            Action::ExpectCancel => {
                return match self.session.until_left(limit).await? {
                    true => Err(Stop::ClientLeft),
                    false => Err(late("the client to leave", limit)),
                };
            }
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

    async fn exec(&mut self, step: &ExecStep, limit: Duration) -> Result<(), Stop> {
        let args = self.fill(&step.args)?;
        let id = self.session.start_exec(&args, step.id.into()).await?;
        if let Some(after) = step.abort_after {
            self.session.rest(after).await?;
            self.session.abort_exec(id).await?;
        }
        if step.wait == Wait::Later {
            let name = step.name.clone().unwrap_or_else(|| id.to_string());
            let step = step.clone();
            self.open.insert(name, OpenExec { id, step });
            return Ok(());
        }
        self.finish_exec(id, step, limit).await
    }

    async fn finish_exec(&mut self, id: u32, step: &ExecStep, limit: Duration) -> Result<(), Stop> {
        let Some(exec) = self.session.finish_exec(id, limit).await? else {
            let what = match self.session.exec(id) {
                Some(exec) if !exec.replies.is_empty() => "streamClose after the reply",
                _ => "an answer",
            };
            return Err(late(&format!("{what} to exec {id}"), limit));
        };
        check_exec(&self.expected(step)?, &exec)?;
        if exec.asked == "requestContextArgs" {
            self.learn_workspace(
                &exec.summary().present["requestContextResult"]["success"]["requestContext"],
            );
        }
        self.capture(&step.capture, &exec.summary())
    }

    /// The step with its variables filled in.
    fn expected(&self, step: &ExecStep) -> Result<ExecStep, Stop> {
        let mut step = step.clone();
        if let Some(pattern) = &step.expect {
            step.expect = Some(self.fill(pattern)?);
        }
        for pattern in &mut step.replies {
            *pattern = self.fill(pattern)?;
        }
        Ok(step)
    }

    fn learn_workspace(&self, context: &Value) {
        if let Some(path) = workspace(context) {
            conversation::lock(&self.conversation)
                .variables
                .set("WS", path.clone());
        }
    }

    fn blob(&self, blob: &Blob) -> Result<Bytes, Stop> {
        Ok(match blob {
            Blob::Bytes(bytes) => bytes.clone(),
            Blob::Json(value) => Bytes::from(self.fill(value)?.to_string()),
            Blob::Text(text) => conversation::lock(&self.conversation)
                .variables
                .fill_text(text)
                .map_err(|error| Stop::Failed(error.to_string()))?
                .into(),
        })
    }

    async fn kv_set(&mut self, set: &KvSet, limit: Duration) -> Result<(), Stop> {
        let data = self.blob(&set.blob)?;
        let id = set
            .blob_id
            .clone()
            .unwrap_or_else(|| memory::blob_id(&data));
        self.session
            .set_blob(&id, &data, set.id.into(), limit)
            .await?;
        if let Some(name) = &set.name {
            let mut conversation = conversation::lock(&self.conversation);
            conversation.variables.set(name, schema::base64(&id).into());
            conversation
                .blobs
                .insert(name.clone(), NamedBlob { id, data });
        }
        Ok(())
    }

    async fn kv_get(&mut self, get: &KvGet, limit: Duration) -> Result<(), Stop> {
        let (id, stored) = match &get.key {
            BlobKey::Id(id) => (id.clone(), None),
            BlobKey::Name(name) => {
                let conversation = conversation::lock(&self.conversation);
                let blob = conversation.blobs.get(name).ok_or_else(|| {
                    Stop::Failed(format!(
                        "no blob was stored as {name:?} in this conversation"
                    ))
                })?;
                (blob.id.clone(), Some(blob.data.clone()))
            }
        };
        let wanted = match &get.expect {
            Some(blob) => Some(self.blob(blob)?),
            None => stored,
        };
        let got = self.session.get_blob(&id, get.id.into(), limit).await?;
        match (get.presence, got, wanted) {
            (Presence::Missing, None, _) | (Presence::Required, Some(_), None) => Ok(()),
            (Presence::Missing, Some(got), _) => Err(Stop::Failed(format!(
                "expected no blob, got {} bytes",
                got.len()
            ))),
            (Presence::Required, None, _) => Err(Stop::Failed("expected a blob, got none".into())),
            (Presence::Required, Some(got), Some(wanted)) if got == wanted => Ok(()),
            (Presence::Required, Some(got), Some(wanted)) => Err(Stop::Failed(format!(
                "expected blob {:?}, got {:?}",
                String::from_utf8_lossy(&wanted),
                String::from_utf8_lossy(&got)
            ))),
        }
    }

    async fn query(&mut self, ask: &Ask, limit: Duration) -> Result<(), Stop> {
        let query = self.fill(&ask.query)?;
        let answer = self.session.query(&query, ask.id.into(), limit).await?;
        if let Some(pattern) = &ask.expect {
            check("the response", &self.fill(pattern)?, &answer)?;
        }
        self.capture(&ask.capture, &answer)
    }

    async fn checkpoint(&mut self, plan: &CheckpointPlan, limit: Duration) -> Result<(), Stop> {
        let state = match plan {
            CheckpointPlan::State(state) => self.fill(state)?,
            CheckpointPlan::Auto => {
                let turn = Turn {
                    user: self.request.user_text().map(str::to_owned),
                    assistant: self.session.spoken().to_owned(),
                    request_id: self.session.request_id().to_owned(),
                };
                let before = self.request.conversation_state();
                let draft = memory::draft(before, &turn, self.token_details.clone())
                    .map_err(|error| Stop::Failed(error.to_string()))?;
                for blob in &draft.blobs {
                    self.session.keep_blob(blob, limit).await?;
                }
                draft.state
            }
        };
        send_checkpoint(self.session, &self.conversation, &state).await
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

    async fn fault(&mut self, fault: &Fault) -> Result<Flow, Stop> {
        let session = &mut *self.session;
        match fault {
            Fault::Reset(code) => {
                session
                    .fault("reset", json!({ "code": code }), Reply::Reset(*code))
                    .await?;
            }
            Fault::GoAway(code) => {
                session
                    .fault("goaway", json!({ "code": code }), Reply::GoAway(*code))
                    .await?;
            }
            Fault::Cut => session.fault("cut", json!({}), Reply::Cut).await?,
            Fault::HalfClose => session.half_close().await?,
            Fault::Stall => {
                session.set_pulse(Pulse::Still);
                loop {
                    if session.until_left(Duration::from_secs(3600)).await? {
                        return Err(Stop::ClientLeft);
                    }
                }
            }
            Fault::Truncate(bytes) => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": "this envelope is cut short" } } });
                let payload = schema::encode(schema::SERVER_MESSAGE, &message)
                    .map_err(|error| Stop::Failed(error.to_string()))?;
                let wire =
                    crate::wire::envelope::encode(crate::wire::envelope::Kind::Message, &payload);
                let keep = (*bytes).min(wire.len() - 1);
                session.send_raw("truncate", wire.slice(..keep)).await?;
                session.half_close().await?;
            }
            Fault::Garbage(bytes) => {
                session.send_raw("garbage", bytes.clone()).await?;
                return Ok(Flow::GoOn);
            }
            Fault::Oversized(size) => {
                session.send_raw("oversized", prefix(*size)).await?;
                return Ok(Flow::GoOn);
            }
            Fault::Drip { text, bytes, every } => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": text } } });
                session.drip(&message, *bytes, *every).await?;
                return Ok(Flow::GoOn);
            }
            Fault::HoldWindow => {
                session.hold_window();
                return Ok(Flow::GoOn);
            }
        }
        Ok(Flow::Over)
    }
}

/// Sends a checkpoint and remembers it.
pub(super) async fn send_checkpoint(
    session: &mut Session,
    shared: &Shared,
    state: &Value,
) -> Result<(), Stop> {
    let bytes = schema::encode(schema::CONVERSATION_STATE, state)
        .map_err(|error| Stop::Failed(error.to_string()))?;
    let shown = schema::bytes_to_json(schema::CONVERSATION_STATE, &bytes, schema::Detail::Present);
    {
        let mut conversation = conversation::lock(shared);
        conversation.checkpoint = Some(bytes);
        conversation.variables.set("CHECKPOINT", shown);
    }
    session
        .send(&json!({ "conversationCheckpointUpdate": state }))
        .await
}

/// The first workspace of a request context.
pub(super) fn workspace(context: &Value) -> Option<&Value> {
    context.pointer("/env/workspacePaths/0")
}

fn expects_leaving(action: &Action) -> bool {
    matches!(action, Action::ExpectCancel | Action::Fault(Fault::Stall))
}

fn check(what: &str, pattern: &Value, shown: &Shown) -> Result<(), Stop> {
    matcher::fits(pattern, shown).map_err(|mismatch| Stop::Failed(format!("{what}: {mismatch}")))
}

fn check_exec(step: &ExecStep, exec: &Exec) -> Result<(), Stop> {
    match (&step.throws, &exec.thrown) {
        (Some(wanted), Some(thrown)) => {
            let error = thrown["error"].as_str().unwrap_or_default();
            if error.contains(wanted.as_str()) {
                return Ok(());
            }
            return Err(Stop::Failed(format!(
                "expected a throw with {wanted:?}, got {error:?}"
            )));
        }
        (Some(wanted), None) => {
            return Err(Stop::Failed(format!(
                "expected a throw with {wanted:?}, got {}",
                show(Some(&exec.summary().present))
            )));
        }
        (None, Some(thrown)) => {
            return Err(Stop::Failed(format!(
                "expected a reply, got throw {}",
                show(Some(thrown))
            )));
        }
        (None, None) => {}
    }
    if let Some(pattern) = &step.expect {
        check("the reply", pattern, &exec.summary())?;
    }
    // Each wanted event must be found after the one before it.
    let mut rest = exec.replies.iter();
    for pattern in &step.replies {
        if !rest.any(|reply| matcher::fits(pattern, reply).is_ok()) {
            let got: Vec<&Value> = exec.replies.iter().map(|reply| &reply.present).collect();
            return Err(Stop::Failed(format!(
                "expected an event like {} in its place, got {}",
                show(Some(pattern)),
                show(Some(&json!(got)))
            )));
        }
    }
    Ok(())
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
