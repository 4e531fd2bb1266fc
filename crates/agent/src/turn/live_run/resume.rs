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
enum News {
    /// Nothing.
    None,
    /// Tool results for the run, and possibly a user message.
    Results,
    /// A user message for a running run.
    Words,
    /// A user message for a run that has ended.
    Late,
}

impl LiveRun {
    /// Sends the run what the host returns: results first, then the user message. Calls without a
    /// result are offered again, unless the user sent a message instead.
    pub(in crate::turn) async fn resume(
        &mut self,
        system: &str,
        messages: &[Message],
        tally: &mut TurnProgress,
    ) {
        // The deadlines were not watched while the host was away.
        self.inbox.rearm(Instant::now());
        self.drop_resent(messages);
        self.count(tally);
        let brought = host_input(messages, |id| self.waits(id));
        let (key, came) = (self.key.clone(), brought.results.len());
        tracing::debug!(
            bridgeKeyPrefix = key,
            toolResultCount = came,
            "native.tool_resume.start"
        );
        let is_card = |result: &&ToolResult| self.show.waits(&result.call_id);
        let news = match brought.results.iter().all(is_card) {
            // Cursor has the results of its own tools: cards are only for the host.
            true if brought.text.is_empty() => News::None,
            true if self.is_over() => News::Late,
            true if self.open.is_empty() && came > 0 => News::Words,
            // Calls without a result are answered with a failure.
            _ => News::Results,
        };
        let given = brought
            .results
            .iter()
            .map(|result| result.call_id.clone())
            .collect();
        let mut returned = Vec::new();
        for result in brought.results {
            tally.count_text(&text(&result.content, ImageHandling::Omitted));
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
        tracing::debug!(left = self.open.len(), words = %Digest(&brought.text), "turn.resumed");
        self.show.open.clear();
        self.cover(system, messages, news, given);
        let left = std::mem::take(&mut self.open);
        if !brought.text.is_empty() {
            returned.extend(left.iter().map(|call| call.id.clone()));
        }
        if !returned.is_empty() {
            // Results and commands take different ways to the run, and the results go first.
            let command = Command::AfterResults(returned);
            let _ = self.handle.commands.send(command).await;
        }
        if brought.text.is_empty() {
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
            tally.count_text(&brought.text);
            let message = user_message(brought.text, brought.images);
            self.inject(message, Source::History(messages.len())).await;
        }
    }

    /// Records the history the run was sent. A checkpoint that covered the last history covers this
    /// one too, if it includes everything the host was shown and nothing in it is new to Cursor.
    fn cover(&mut self, system: &str, messages: &[Message], news: News, given: Vec<String>) {
        let current = self.conversation.sent.as_ref() == Some(self.answer.history());
        let waiting = self.waiting.iter().filter_map(|event| match event {
            RunEvent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        // The history that a checkpoint without the news covers.
        let before = match news {
            News::None | News::Results => messages.len(),
            News::Words | News::Late => messages
                .iter()
                .rposition(|message| message.as_tool_result().is_some())
                .map_or(messages.len(), |at| at + 1),
        };
        let before = Fingerprint::of(system, &messages[..before]);
        let history = match news {
            News::None | News::Results | News::Late => before.clone(),
            News::Words => Fingerprint::of(system, messages),
        };
        let results = (news == News::Results).then_some(given);
        let known = self.conversation.answer.as_deref().unwrap_or_default();
        let known = current.then_some(known);
        let waiting = waiting.collect();
        // Nothing that the host has is new to the checkpoint, so it covers this history too.
        if let Some(unshown) = self.answer.resume(history, waiting, results, known) {
            self.conversation.answer = Some(unshown);
            self.conversation.sent = Some(before.clone());
        }
        self.before_message = (news == News::Words).then_some(before);
    }
}
