//! How a parked run resumes: tool results and user messages for it, and what its checkpoint then
//! covers.

use tokio::time::Instant;

use super::LiveRun;
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::flat_message::{ImageHandling, text};
use crate::conversation::tool_results::host_input;
use crate::inbox::Source;
use crate::message::{Message, ToolResult};
use crate::prompts;
use crate::run::{Command, RunEvent};
use crate::turn::start_run::user_message;
use crate::turn::turn_progress::TurnProgress;
use agent_tools::bridge::HostResult;
use foundation::Digest;

/// What the host sends that Cursor does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewInput {
    /// Nothing.
    None,
    /// Tool results for the run, and possibly a user message.
    Results,
    /// A user message for a running run.
    Message,
    /// A user message for a run that has ended.
    LateMessage,
}

impl LiveRun {
    /// Sends the run what the host returns: results first, then the user message. Calls without a
    /// result are offered again, unless the user sent a message instead.
    pub(in crate::turn) async fn resume(
        &mut self,
        system: &str,
        messages: &[Message],
        progress: &mut TurnProgress,
    ) {
        // The deadlines were not watched while the host was away.
        self.inbox.rearm(Instant::now());
        self.drop_resent(messages);
        self.count(progress);
        let input = host_input(messages, |id| self.waits(id));
        let (key, count) = (self.key.clone(), input.results.len());
        tracing::debug!(
            bridgeKeyPrefix = key,
            toolResultCount = count,
            "native.tool_resume.start"
        );
        let is_card = |result: &&ToolResult| self.show.waits(&result.call_id);
        let new_input = match input.results.iter().all(is_card) {
            // Cursor has the results of its own tools: cards are only for the host.
            true if input.text.is_empty() => NewInput::None,
            true if self.ended().is_some() => NewInput::LateMessage,
            true if self.open.is_empty() && count > 0 => NewInput::Message,
            // Calls without a result are answered with a failure.
            _ => NewInput::Results,
        };
        let returned_ids = input
            .results
            .iter()
            .map(|result| result.call_id.clone())
            .collect();
        let mut returned = Vec::new();
        for result in input.results {
            progress.count_text(&text(&result.content, ImageHandling::Omitted));
            let id = &result.call_id;
            let Some(at) = self.open.iter().position(|call| call.id == *id) else {
                continue;
            };
            tracing::debug!(
                bridgeKeyPrefix = key,
                toolCallId = id,
                "native.tool_resume.sent_result"
            );
            returned.push(id.clone());
            self.open.remove(at).answer(result.to_host_result());
        }
        tracing::debug!(left = self.open.len(), words = %Digest(&input.text), "turn.resumed");
        self.show.open.clear();
        self.cover(system, messages, new_input, returned_ids);
        let left = std::mem::take(&mut self.open);
        if !input.text.is_empty() {
            returned.extend(left.iter().map(|call| call.id.clone()));
        }
        if !returned.is_empty() {
            // Results and commands take different ways to the run, and the results go first.
            let command = Command::AfterResults(returned);
            let _ = self.handle.commands.send(command).await;
        }
        if input.text.is_empty() {
            if !left.is_empty() {
                let left = left.len();
                tracing::debug!(
                    bridgeKeyPrefix = key,
                    left,
                    "native.tool_resume.partial_wait"
                );
            }
            for call in left.into_iter().rev() {
                self.waiting.push_front(RunEvent::HostCall(Box::new(call)));
            }
        } else {
            for call in left {
                call.answer(HostResult::failed(prompts::USER_DID_NOT_WAIT));
            }
            progress.count_text(&input.text);
            let message = user_message(input.text, input.images);
            self.inject(message, Source::History(messages.len())).await;
        }
    }

    /// Records the history the run was sent. A checkpoint that covered the last history covers this
    /// one too, if it includes everything the host was shown and nothing in it is new to Cursor.
    fn cover(
        &mut self,
        system: &str,
        messages: &[Message],
        new_input: NewInput,
        returned_ids: Vec<String>,
    ) {
        let current = self.conversation.sent.as_ref() == Some(self.answer.history());
        // The history that a checkpoint without the new input covers.
        let before = match new_input {
            NewInput::None | NewInput::Results => messages.len(),
            NewInput::Message | NewInput::LateMessage => messages
                .iter()
                .rposition(|message| message.as_tool_result().is_some())
                .map_or(messages.len(), |at| at + 1),
        };
        let before = Fingerprint::of(system, &messages[..before]);
        let history = match new_input {
            NewInput::None | NewInput::Results | NewInput::LateMessage => before.clone(),
            NewInput::Message => Fingerprint::of(system, messages),
        };
        let results = (new_input == NewInput::Results).then_some(returned_ids);
        let known = self.conversation.answer.as_deref().unwrap_or_default();
        let known = current.then_some(known);
        let waiting = self.waiting_text();
        // Nothing that the host has is new to the checkpoint, so it covers this history too.
        if let Some(unshown) = self.answer.resume(history, waiting, results, known) {
            self.conversation.answer = Some(unshown);
            self.conversation.sent = Some(before.clone());
        }
        self.before_message = (new_input == NewInput::Message).then_some(before);
    }
}
