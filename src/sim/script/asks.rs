//! Steps that ask the client something and look at its answer.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::expect::{check, check_exec};
use super::{OpenExec, Player, workspace};
use crate::sim::conversation::{self, NamedBlob};
use crate::sim::memory::{self, Turn};
use crate::sim::scenario::{
    Ask, Blob, BlobKey, CheckpointPlan, ExecStep, KvGet, KvSet, Presence, Wait,
};
use crate::sim::schema;
use crate::sim::session::{Stop, late};

impl Player<'_> {
    pub(super) async fn exec(&mut self, step: &ExecStep, limit: Duration) -> Result<(), Stop> {
        let args = self.fill(&step.args)?;
        self.before_exec = Some(self.turn());
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

    pub(super) async fn finish_exec(
        &mut self,
        id: u32,
        step: &ExecStep,
        limit: Duration,
    ) -> Result<(), Stop> {
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
        if let Some(told) = &step.told {
            self.heard.push(match &exec.thrown {
                // What was thrown is an answer too, and nobody asks for it again.
                Some(thrown) => format!("{told}: {}", thrown["error"]),
                None => exec.summary().present.to_string(),
            });
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

    pub(super) async fn kv_set(&mut self, set: &KvSet, limit: Duration) -> Result<(), Stop> {
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

    pub(super) async fn kv_get(&mut self, get: &KvGet, limit: Duration) -> Result<(), Stop> {
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

    pub(super) async fn query(&mut self, ask: &Ask, limit: Duration) -> Result<(), Stop> {
        let query = self.fill(&ask.query)?;
        let answer = self.session.query(&query, ask.id.into(), limit).await?;
        if let Some(pattern) = &ask.expect {
            check("the response", &self.fill(pattern)?, &answer)?;
        }
        self.capture(&ask.capture, &answer)
    }

    /// What the run has added to the conversation so far.
    fn turn(&self) -> Turn {
        Turn {
            user: self.request.user_text().map(str::to_owned),
            assistant: self.session.spoken().to_owned(),
            heard: self.heard.clone(),
            injected: self.session.taken_up().to_vec(),
            request_id: self.session.request_id().to_owned(),
        }
    }

    pub(super) async fn checkpoint(
        &mut self,
        plan: &CheckpointPlan,
        limit: Duration,
    ) -> Result<(), Stop> {
        let state = match plan {
            CheckpointPlan::State(state) => self.fill(state)?,
            CheckpointPlan::Auto | CheckpointPlan::Late => {
                let turn = match plan {
                    CheckpointPlan::Late => self.before_exec.clone(),
                    _ => None,
                };
                // A run that asked for nothing has nothing to be late with.
                let turn = turn.unwrap_or_else(|| self.turn());
                let before = self.request.conversation_state();
                let draft = memory::draft(before, &turn, self.token_details.clone())
                    .map_err(|error| Stop::Failed(error.to_string()))?;
                for blob in &draft.blobs {
                    self.session.keep_blob(blob, limit).await?;
                }
                draft.state
            }
        };
        self.session
            .send(&json!({ "conversationCheckpointUpdate": state }))
            .await
    }
}
