//! The built-in responder: a small assistant for runs without a scenario.
//!
//! It behaves like the real service as far as a client can observe it: requests the context,
//! streams thinking and text, uses exec requests, stores the conversation in blobs on the client
//! and reads it back. Its answers repeat the user's message; there is no model.

mod intent;
mod streaming;
mod tool_requests;

use std::time::Duration;

use serde_json::{Value, json};

use super::conversation::SharedConversation;
use super::conversation_state::{self, TurnContent, estimate_tokens};
use super::history::{self, HistoryMessage};
use super::request::RunRequest;
use super::script::{store_checkpoint, workspace};
use super::server_run::{MessageId, RunStop, ServerRun};
use intent::Intent;
use streaming::{InputMonitor, Interruption, update};

/// How long the client may take for an answer that needs no user.
const LIMIT: Duration = Duration::from_secs(30);

/// Plays one run.
pub(super) async fn respond(
    run: &mut ServerRun,
    request: &RunRequest,
    conversation: SharedConversation,
) -> Result<(), RunStop> {
    let history = history::read(run, request, LIMIT).await?;
    let mut turn = ResponderTurn {
        run,
        request,
        conversation,
        history,
        monitor: InputMonitor::default(),
        thinking_bytes: 0,
    };
    match turn.respond().await {
        Ok(()) => turn.finish().await,
        Err(Interruption::Stopped(stop)) => Err(stop),
        Err(Interruption::Cancelled) => {
            turn.finish().await?;
            Err(RunStop::ClientLeft)
        }
    }
}

struct ResponderTurn<'a> {
    run: &'a mut ServerRun,
    request: &'a RunRequest,
    conversation: SharedConversation,
    history: Vec<HistoryMessage>,
    monitor: InputMonitor,
    thinking_bytes: usize,
}

impl ResponderTurn<'_> {
    async fn respond(&mut self) -> Result<(), Interruption> {
        match self.request.action() {
            "userMessageAction" | "startPlanAction" => {
                let text = self.request.user_text().unwrap_or_default().to_owned();
                self.answer(&text).await
            }
            "resumeAction" => {
                let text = self.last_user_text().unwrap_or_default().to_owned();
                self.send_text("Picking up where the connection broke. ")
                    .await?;
                self.answer(&text).await
            }
            "summarizeAction" => self.summarize().await,
            "cancelAction" => Err(Interruption::Cancelled),
            other => self.send_text(&format!("Noted ({other}).")).await,
        }
    }

    async fn answer(&mut self, text: &str) -> Result<(), Interruption> {
        let context = self.context().await?;
        let tools = intent::offered_tools(&self.request.message.present, &context);
        let thinking = format!("The person says: {text}");
        self.thinking_bytes += thinking.len();
        self.monitor.stream_thinking(self.run, &thinking).await?;
        let workspace = workspace(&context)
            .and_then(Value::as_str)
            .unwrap_or(".")
            .to_owned();
        let answer = match intent::detect(text, &tools) {
            Intent::RecallFirst => self.recall_first(text),
            Intent::CallTool(tool, arguments) => {
                self.send_text(&format!("Calling {}. ", tool.tool)).await?;
                tool_requests::call_tool(self.run, &mut self.monitor, &tool, arguments).await?
            }
            Intent::ReadFile(name) => {
                self.send_text("Let me have a look. ").await?;
                tool_requests::read_file(self.run, &mut self.monitor, &workspace, name).await?
            }
            Intent::RunCommand(command) => {
                self.send_text(&format!("Running `{command}`. ")).await?;
                tool_requests::run_command(self.run, &mut self.monitor, &workspace, &command)
                    .await?
            }
            Intent::Reply => self.reply(text),
        };
        self.send_text(&answer).await
    }

    /// Streams text, then a remark about each message injected meanwhile.
    async fn send_text(&mut self, text: &str) -> Result<(), Interruption> {
        self.monitor.stream_text(self.run, text).await?;
        while !self.monitor.injected.is_empty() {
            let injected = self.monitor.injected.remove(0);
            let remark = format!(" (You also said: {injected}) ");
            self.monitor.stream_text(self.run, &remark).await?;
        }
        Ok(())
    }

    /// Returns the request context from the request, or requests it from the client.
    async fn context(&mut self) -> Result<Value, Interruption> {
        if let Some(context) = self.request.context() {
            return Ok(context.clone());
        }
        let id = self
            .run
            .start_exec(&json!({ "requestContextArgs": {} }), MessageId::Next)
            .await?;
        let exec = self.monitor.wait_for_exec(self.run, id).await?;
        Ok(exec.summary().present["requestContextResult"]["success"]["requestContext"].clone())
    }

    fn reply(&self, text: &str) -> String {
        let images = self.request.message.present["action"]["userMessageAction"]["userMessage"]
            ["selectedContext"]["selectedImages"]
            .as_array()
            .map_or(0, Vec::len);
        let earlier = self.user_messages().count();
        let mut reply = format!("You said: \"{text}\".");
        if images > 0 {
            reply.push_str(&format!(" (with {images} image(s))"));
        }
        if earlier > 0 {
            reply.push_str(&format!(
                " I remember {earlier} earlier message(s) of yours."
            ));
        } else {
            reply.push_str(" I am a simulated assistant: ask me to read a file, to run a command, or to use one of your tools by its name.");
        }
        reply
    }

    fn recall_first(&self, text: &str) -> String {
        match self.user_messages().next() {
            Some(first) => format!("You first said: {}", first.text),
            None => format!("This is the first thing you said: {text}"),
        }
    }

    fn user_messages(&self) -> impl Iterator<Item = &HistoryMessage> {
        self.history.iter().filter(|message| message.role == "user")
    }

    fn last_user_text(&self) -> Option<&str> {
        self.user_messages()
            .last()
            .map(|message| message.text.as_str())
    }

    /// Replaces the conversation by a summary of it.
    async fn summarize(&mut self) -> Result<(), Interruption> {
        update(self.run, "summaryStarted", json!({})).await?;
        let messages: Vec<String> = self
            .user_messages()
            .map(|message| message.text.chars().take(80).collect())
            .collect();
        let summary = format!("The person said: {}", messages.join("; "));
        update(self.run, "summary", json!({ "summary": summary })).await?;
        update(self.run, "summaryCompleted", json!({})).await?;
        let new = conversation_state::summarized(&summary).map_err(failed)?;
        self.checkpoint(new).await?;
        Ok(())
    }

    /// Sends a checkpoint, the end of the turn with its usage, a checkpoint and the end of the
    /// stream.
    async fn finish(&mut self) -> Result<(), RunStop> {
        let summarized = self.request.action() == "summarizeAction";
        if !summarized {
            let new = self.new_state()?;
            self.checkpoint(new).await?;
        }
        update(self.run, "turnEnded", self.usage()).await?;
        if !summarized {
            let new = self.new_state()?;
            self.checkpoint(new).await?;
        }
        self.run.end().await
    }

    fn new_state(&self) -> Result<conversation_state::NewState, RunStop> {
        let turn = TurnContent {
            user: self.request.user_text().map(str::to_owned),
            assistant: self.run.sent_text().to_owned(),
            request_id: self.run.request_id().to_owned(),
            ..TurnContent::default()
        };
        conversation_state::after_turn(self.request.conversation_state(), &turn, None)
            .map_err(failed)
    }

    async fn checkpoint(&mut self, new: conversation_state::NewState) -> Result<(), RunStop> {
        for blob in &new.blobs {
            self.run.store_blob_once(blob, LIMIT).await?;
        }
        self.run
            .send(&json!({ "conversationCheckpointUpdate": new.state }))
            .await?;
        store_checkpoint(self.run, &self.conversation);
        Ok(())
    }

    /// Estimates the usage from the text lengths.
    fn usage(&self) -> Value {
        let before: usize = self.history.iter().map(|message| message.text.len()).sum();
        let message = self.request.user_text().map_or(0, str::len);
        json!({
            "inputTokens": estimate_tokens(before + message) + 1_000,
            "outputTokens": estimate_tokens(self.run.sent_text().len() + self.thinking_bytes),
            "cacheReadTokens": estimate_tokens(before),
            "cacheWriteTokens": 0,
            "reasoningTokens": estimate_tokens(self.thinking_bytes),
        })
    }
}

fn failed(error: super::schema::MessageCodecError) -> RunStop {
    RunStop::Failed(error.to_string())
}
