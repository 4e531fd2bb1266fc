//! Plays the steps that send a request to the client and check its answer.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::expect::{check, check_exec};
use super::{AwaitedExec, Player, workspace};
use crate::conversation::{self, NamedBlob};
use crate::conversation_state::{self, TurnContent};
use crate::scenario::{Blob, BlobRef, CheckpointPlan, ExecStep, KvGet, KvSet, QueryStep};
use crate::schema;
use crate::server_run::{RunStop, timed_out};

impl Player<'_> {
    pub(super) async fn exec(&mut self, step: &ExecStep, limit: Duration) -> Result<(), RunStop> {
        let args = self.fill(&step.args)?;
        self.before_exec = Some(self.turn());
        let id = self.run.start_exec(&args, step.id.into()).await?;
        if let Some(after) = step.abort_after {
            self.run.wait(after).await?;
            self.run.abort_exec(id).await?;
        }
        if step.leave_open {
            let name = step.name.clone().unwrap_or_else(|| id.to_string());
            let step = step.clone();
            self.open.insert(name, AwaitedExec { id, step });
            return Ok(());
        }
        self.finish_exec(id, step, limit).await
    }

    pub(super) async fn finish_exec(
        &mut self,
        id: u32,
        step: &ExecStep,
        limit: Duration,
    ) -> Result<(), RunStop> {
        let Some(exec) = self.run.finish_exec(id, limit).await? else {
            let what = match self.run.exec(id) {
                Some(exec) if !exec.replies.is_empty() => "streamClose after the reply",
                _ => "an answer",
            };
            return Err(timed_out(&format!("{what} to exec {id}"), limit));
        };
        check_exec(&self.expected(step)?, &exec)?;
        if exec.request_case == "requestContextArgs" {
            self.learn_workspace(
                &exec.summary().present["requestContextResult"]["success"]["requestContext"],
            );
        }
        if exec.request_case == "mcpArgs" && exec.thrown.is_none() {
            let id = self.fill(&step.args["mcpArgs"]["toolCallId"])?;
            self.tool_calls.push(json!({
                "toolCallId": id,
                "mcpToolCall": { "args": { "toolCallId": id }, "result": {} },
            }));
        }
        if let Some(marker) = &step.answer_marker {
            self.tool_results.push(match &exec.thrown {
                // A throw is an answer too and must not be requested again.
                Some(thrown) => format!("{marker}: {}", thrown["error"]),
                None => exec.summary().present.to_string(),
            });
        }
        self.capture(&step.capture, &exec.summary())
    }

    /// Returns the step with variables replaced in its expectations.
    fn expected(&self, step: &ExecStep) -> Result<ExecStep, RunStop> {
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

    fn blob(&self, blob: &Blob) -> Result<Bytes, RunStop> {
        Ok(match blob {
            Blob::Bytes(bytes) => bytes.clone(),
            Blob::Json(value) => Bytes::from(self.fill(value)?.to_string()),
            Blob::Text(text) => conversation::lock(&self.conversation)
                .variables
                .fill_text(text)
                .map_err(|error| RunStop::Failed(error.to_string()))?
                .into(),
        })
    }

    pub(super) async fn kv_set(&mut self, set: &KvSet, limit: Duration) -> Result<(), RunStop> {
        let data = self.blob(&set.blob)?;
        let id = set
            .blob_id
            .clone()
            .unwrap_or_else(|| conversation_state::blob_id(&data));
        self.run.set_blob(&id, &data, set.id.into(), limit).await?;
        if let Some(name) = &set.name {
            let mut conversation = conversation::lock(&self.conversation);
            conversation.variables.set(name, schema::base64(&id).into());
            conversation
                .blobs
                .insert(name.clone(), NamedBlob { id, data });
        }
        Ok(())
    }

    pub(super) async fn kv_get(&mut self, get: &KvGet, limit: Duration) -> Result<(), RunStop> {
        let (id, stored) = match &get.key {
            BlobRef::Id(id) => (id.clone(), None),
            BlobRef::Name(name) => {
                let conversation = conversation::lock(&self.conversation);
                let blob = conversation.blobs.get(name).ok_or_else(|| {
                    RunStop::Failed(format!(
                        "no blob was stored as {name:?} in this conversation"
                    ))
                })?;
                (blob.id.clone(), Some(blob.data.clone()))
            }
        };
        let expected = match &get.expect {
            Some(blob) => Some(self.blob(blob)?),
            None => stored,
        };
        let got = self.run.get_blob(&id, get.id.into(), limit).await?;
        match (get.must_be_missing, got, expected) {
            (true, None, _) | (false, Some(_), None) => Ok(()),
            (true, Some(got), _) => Err(RunStop::Failed(format!(
                "expected no blob, got {} bytes",
                got.len()
            ))),
            (false, None, _) => Err(RunStop::Failed("expected a blob, got none".into())),
            (false, Some(got), Some(expected)) if got == expected => Ok(()),
            (false, Some(got), Some(expected)) => Err(RunStop::Failed(format!(
                "expected blob {:?}, got {:?}",
                String::from_utf8_lossy(&expected),
                String::from_utf8_lossy(&got)
            ))),
        }
    }

    pub(super) async fn query(&mut self, step: &QueryStep, limit: Duration) -> Result<(), RunStop> {
        let query = self.fill(&step.query)?;
        let answer = self.run.query(&query, step.id.into(), limit).await?;
        if let Some(pattern) = &step.expect {
            check("the response", &self.fill(pattern)?, &answer)?;
        }
        self.capture(&step.capture, &answer)
    }

    /// Returns what the run has added to the conversation so far.
    fn turn(&self) -> TurnContent {
        TurnContent {
            user: self.request.user_text().map(str::to_owned),
            assistant: self.run.sent_text().to_owned(),
            tool_results: self.tool_results.clone(),
            tool_calls: self.tool_calls.clone(),
            injected: self.run.delivered_injections().to_vec(),
            request_id: self.run.request_id().to_owned(),
        }
    }

    pub(super) async fn checkpoint(
        &mut self,
        plan: &CheckpointPlan,
        limit: Duration,
    ) -> Result<(), RunStop> {
        let state = match plan {
            CheckpointPlan::State(state) => self.fill(state)?,
            CheckpointPlan::Auto | CheckpointPlan::Late => {
                let turn = match plan {
                    CheckpointPlan::Late => self.before_exec.clone(),
                    _ => None,
                };
                // Without an exec request, a late checkpoint is the same as an automatic one.
                let turn = turn.unwrap_or_else(|| self.turn());
                let before = self.request.conversation_state();
                let new = conversation_state::after_turn(before, &turn, self.token_details.clone())
                    .map_err(|error| RunStop::Failed(error.to_string()))?;
                for blob in &new.blobs {
                    self.run.store_blob_once(blob, limit).await?;
                }
                new.state
            }
        };
        self.run
            .send(&json!({ "conversationCheckpointUpdate": state }))
            .await
    }
}
