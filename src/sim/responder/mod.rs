//! The built-in responder: a small assistant for when no scenario is played.
//!
//! It behaves like the real service where that can be seen: asks for the context, thinks,
//! speaks in words, works through execs, keeps the conversation in blobs on the client and
//! reads it back. What it says is made of the person's own words; there is no model here.

mod intent;
mod voice;
mod work;

use std::time::Duration;

use serde_json::{Value, json};

use super::conversation::Shared;
use super::history::{self, Message};
use super::memory::{self, Turn, tokens};
use super::request::RunRequest;
use super::script::{remember_checkpoint, workspace};
use super::session::{Id, Session, Stop};
use intent::Intent;
use voice::{Ears, Interruption, update};

/// How long the client may take for an answer that needs no person.
const LIMIT: Duration = Duration::from_secs(30);

/// Answers one run.
pub(super) async fn respond(
    session: &mut Session,
    request: &RunRequest,
    conversation: Shared,
) -> Result<(), Stop> {
    let history = history::recall(session, request, LIMIT).await?;
    let mut turn = Conversing {
        session,
        request,
        conversation,
        history,
        ears: Ears::default(),
        thought: 0,
    };
    match turn.take().await {
        Ok(()) => turn.finish().await,
        Err(Interruption::Stopped(stop)) => Err(stop),
        Err(Interruption::Cancelled) => {
            turn.finish().await?;
            Err(Stop::ClientLeft)
        }
    }
}

/// One turn of a conversation.
struct Conversing<'a> {
    session: &'a mut Session,
    request: &'a RunRequest,
    conversation: Shared,
    history: Vec<Message>,
    ears: Ears,
    thought: usize,
}

impl Conversing<'_> {
    async fn take(&mut self) -> Result<(), Interruption> {
        match self.request.action() {
            "userMessageAction" | "startPlanAction" => {
                let text = self.request.user_text().unwrap_or_default().to_owned();
                self.answer(&text).await
            }
            "resumeAction" => {
                let text = self.last_user_text().unwrap_or_default().to_owned();
                self.say("Picking up where the connection broke. ").await?;
                self.answer(&text).await
            }
            "summarizeAction" => self.summarize().await,
            "cancelAction" => Err(Interruption::Cancelled),
            other => self.say(&format!("Noted ({other}).")).await,
        }
    }

    async fn answer(&mut self, text: &str) -> Result<(), Interruption> {
        let context = self.context().await?;
        let tools = intent::offered(&self.request.shown.present, &context);
        let thought = format!("The person says: {text}");
        self.thought += thought.len();
        self.ears.think(self.session, &thought).await?;
        let place = workspace(&context)
            .and_then(Value::as_str)
            .unwrap_or(".")
            .to_owned();
        let words = match intent::guess(text, &tools) {
            Intent::RecallFirst => self.recall_first(text),
            Intent::Call(tool, arguments) => {
                self.say(&format!("Calling {}. ", tool.tool)).await?;
                work::call(self.session, &mut self.ears, &tool, arguments).await?
            }
            Intent::Read(name) => {
                self.say("Let me have a look. ").await?;
                work::read(self.session, &mut self.ears, &place, name).await?
            }
            Intent::Run(command) => {
                self.say(&format!("Running `{command}`. ")).await?;
                work::run(self.session, &mut self.ears, &place, &command).await?
            }
            Intent::Talk => self.talk(text),
        };
        self.say(&words).await
    }

    /// Says something, then what it has to say about messages that came meanwhile.
    async fn say(&mut self, words: &str) -> Result<(), Interruption> {
        self.ears.say(self.session, words).await?;
        while !self.ears.heard.is_empty() {
            let heard = self.ears.heard.remove(0);
            let words = format!(" (You also said: {heard}) ");
            self.ears.say(self.session, &words).await?;
        }
        Ok(())
    }

    /// The request context: from the request, or asked for.
    async fn context(&mut self) -> Result<Value, Interruption> {
        if let Some(context) = self.request.context() {
            return Ok(context.clone());
        }
        let id = self
            .session
            .start_exec(&json!({ "requestContextArgs": {} }), Id::Next)
            .await?;
        let exec = self.ears.wait(self.session, id).await?;
        Ok(exec.summary().present["requestContextResult"]["success"]["requestContext"].clone())
    }

    fn talk(&self, text: &str) -> String {
        let images = self.request.shown.present["action"]["userMessageAction"]["userMessage"]
            ["selectedContext"]["selectedImages"]
            .as_array()
            .map_or(0, Vec::len);
        let earlier = self.user_messages().count();
        let mut words = format!("You said: \"{text}\".");
        if images > 0 {
            words.push_str(&format!(" (with {images} image(s))"));
        }
        if earlier > 0 {
            words.push_str(&format!(
                " I remember {earlier} earlier message(s) of yours."
            ));
        } else {
            words.push_str(" I am a simulated assistant: ask me to read a file, to run a command, or to use one of your tools by its name.");
        }
        words
    }

    fn recall_first(&self, text: &str) -> String {
        match self.user_messages().next() {
            Some(first) => format!("You first said: {}", first.text),
            None => format!("This is the first thing you said: {text}"),
        }
    }

    fn user_messages(&self) -> impl Iterator<Item = &Message> {
        self.history.iter().filter(|message| message.role == "user")
    }

    fn last_user_text(&self) -> Option<&str> {
        self.user_messages()
            .last()
            .map(|message| message.text.as_str())
    }

    /// Replaces the conversation by a summary of it.
    async fn summarize(&mut self) -> Result<(), Interruption> {
        update(self.session, "summaryStarted", json!({})).await?;
        let said: Vec<String> = self
            .user_messages()
            .map(|message| message.text.chars().take(80).collect())
            .collect();
        let summary = format!("The person said: {}", said.join("; "));
        update(self.session, "summary", json!({ "summary": summary })).await?;
        update(self.session, "summaryCompleted", json!({})).await?;
        let draft = memory::summarized(&summary).map_err(failed)?;
        self.checkpoint(draft).await?;
        Ok(())
    }

    /// Checkpoint, end of turn with its usage, checkpoint, end of stream.
    async fn finish(&mut self) -> Result<(), Stop> {
        let summarized = self.request.action() == "summarizeAction";
        if !summarized {
            let draft = self.draft()?;
            self.checkpoint(draft).await?;
        }
        update(self.session, "turnEnded", self.usage()).await?;
        if !summarized {
            let draft = self.draft()?;
            self.checkpoint(draft).await?;
        }
        self.session.end().await
    }

    fn draft(&self) -> Result<memory::Draft, Stop> {
        let turn = Turn {
            user: self.request.user_text().map(str::to_owned),
            assistant: self.session.spoken().to_owned(),
            heard: Vec::new(),
            injected: Vec::new(),
            request_id: self.session.request_id().to_owned(),
        };
        memory::draft(self.request.conversation_state(), &turn, None).map_err(failed)
    }

    async fn checkpoint(&mut self, draft: memory::Draft) -> Result<(), Stop> {
        for blob in &draft.blobs {
            self.session.keep_blob(blob, LIMIT).await?;
        }
        self.session
            .send(&json!({ "conversationCheckpointUpdate": draft.state }))
            .await?;
        remember_checkpoint(self.session, &self.conversation);
        Ok(())
    }

    /// An estimate from characters.
    fn usage(&self) -> Value {
        let before: usize = self.history.iter().map(|message| message.text.len()).sum();
        let said = self.request.user_text().map_or(0, str::len);
        json!({
            "inputTokens": tokens(before + said) + 1_000,
            "outputTokens": tokens(self.session.spoken().len() + self.thought),
            "cacheReadTokens": tokens(before),
            "cacheWriteTokens": 0,
            "reasoningTokens": tokens(self.thought),
        })
    }
}

fn failed(error: super::schema::SchemaError) -> Stop {
    Stop::Failed(error.to_string())
}
