//! A model of a prompt with its host, server, disk and process: random steps against the effect
//! log, the answer log and the inbox together, with all invariants checked after every step.
//!
//! The simulated server works through a script: a sentence, a native command, a call of the host,
//! the next sentence. On each stream it continues after what that stream knows: its checkpoint and
//! what it was sent. A checkpoint contains what the server knew at some time since the checkpoint
//! before it arrived, but all text: the model of the answer log covers late text. Messages that a
//! checkpoint includes are in the host's history when the host sends it again.

mod invariants;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tokio::time::Instant;
use uuid::Uuid;

use self::script::{SENTENCES, ServerKnowledge, host_id, is_hosts, request};
use super::answer_rounds::{AnswerRounds, Coverage};
use crate::answer_log::AnswerLog;
use crate::conversation::answer_diff::{AnswerGap, compare};
use crate::conversation::fingerprint::Fingerprint;
use crate::effect_log::{EffectDigest, EffectLog, FileEntry, RequestKey, Start};
use crate::inbox::{Inbox, InjectionStep, Source};
use crate::message::Message;
use crate::run::{
    CheckpointContents, Injection, Progress, RetryBudget, RetryDecision, RetryPolicy, UserMessage,
    VisibleProgress,
};
use agent_tools::ExecReply;
use cursor_client::failure::Failure;
use cursor_proto::agent::v1::context_injection_state::State;
use cursor_proto::agent::v1::{
    ContextInjectionDelivered, ContextInjectionQueued, ContextInjectionRejected,
    ContextInjectionState, ContextInjectionStateUpdate, McpResult, ShellResult,
};
use cursor_proto::state::PendingCalls;

/// The limits are tested elsewhere.
const PATIENT: RetryPolicy = RetryPolicy {
    server: u32::MAX,
    transport: u32::MAX,
    unreached: u32::MAX,
    transport_time: Duration::MAX,
    idle: u32::MAX,
    restarts_after_results: true,
    barren_resumes: u32::MAX,
    base_delay: Duration::ZERO,
    max_delay: Duration::ZERO,
};

#[derive(Debug, Clone, Copy)]
enum PromptStep {
    /// The server continues: a sentence or a request.
    Continue,
    /// The oldest open command ends.
    Result,
    /// A checkpoint arrives, taken this many changes ago if that is possible. A readable one names
    /// its results and messages.
    Checkpoint { lag: usize, is_readable: bool },
    /// The conversation is written to disk.
    Save,
    /// The host injects a message.
    Inject,
    /// The server reports on the oldest message that it has not delivered.
    Report(MessageReport),
    /// The stream is lost, and the run continues from the newest checkpoint.
    LoseStream { is_idle: bool },
    /// The server refuses the checkpoint, and the next turn sends the history.
    RefuseCheckpoint,
    /// The process is killed; the next one reads the disk, and the host sends its history.
    Kill,
}

#[derive(Debug, Clone, Copy)]
enum MessageReport {
    Queued,
    Delivered,
    Rejected,
}

fn step() -> impl Strategy<Value = PromptStep> {
    let report = prop_oneof![
        1 => Just(MessageReport::Queued),
        3 => Just(MessageReport::Delivered),
        1 => Just(MessageReport::Rejected),
    ];
    prop_oneof![
        10 => Just(PromptStep::Continue),
        8 => Just(PromptStep::Result),
        4 => (0..4_usize, any::<bool>())
            .prop_map(|(lag, is_readable)| PromptStep::Checkpoint { lag, is_readable }),
        2 => Just(PromptStep::Save),
        2 => Just(PromptStep::Inject),
        3 => report.prop_map(PromptStep::Report),
        2 => any::<bool>().prop_map(|is_idle| PromptStep::LoseStream { is_idle }),
        1 => Just(PromptStep::RefuseCheckpoint),
        1 => Just(PromptStep::Kill),
    ]
}

/// A history that the host has sent: how many results it contains, and how much text precedes the
/// answer to it.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    results: usize,
    text: usize,
}

/// What is written to disk together.
#[derive(Debug, Clone, Default)]
struct Stored {
    checkpoint: ServerKnowledge,
    coverage: Option<(usize, String)>,
    messages: Vec<UserMessage>,
}

struct PromptModel {
    effects: EffectLog,
    answer: AnswerLog,
    inbox: Inbox,
    rounds: AnswerRounds,
    /// The server's knowledge on the current stream, and its earlier knowledge since the last
    /// checkpoint arrived.
    now: ServerKnowledge,
    earlier: Vec<ServerKnowledge>,
    /// The newest checkpoint, and which history it covers with how much of the answer.
    conversation: Stored,
    /// What the run started with.
    start: ServerKnowledge,
    retries: RetryBudget,
    /// Whether this stream has brought a checkpoint, and whether text since.
    has_checkpoint: bool,
    has_text: bool,
    /// Effects the checkpoint includes that the file does not say yet.
    unsaved: Vec<EffectDigest>,
    disk: Stored,
    file: Vec<FileEntry>,
    /// Commands being executed, by the number of their request.
    open: BTreeMap<u32, usize>,
    requests: u32,
    /// Injections that the stream has not delivered.
    injected: Vec<Injection>,
    /// The ids with which messages were sent.
    message_ids: Vec<(String, Uuid)>,
    arrived: usize,
    /// Messages that the host's history contains.
    in_history: BTreeSet<String>,
    executed: BTreeMap<usize, usize>,
    /// What the host has: text, results in order, and the histories it has sent.
    shown: String,
    returned: Vec<usize>,
    histories: Vec<History>,
}

fn fingerprint(history: usize) -> Fingerprint {
    let messages: Vec<Message> = (0..=history)
        .map(|at| Message::user(at.to_string()))
        .collect();
    Fingerprint::of("S", &messages)
}

impl PromptModel {
    fn new() -> Self {
        Self {
            effects: EffectLog::default(),
            answer: AnswerLog::default(),
            inbox: Inbox::default(),
            rounds: AnswerRounds::new(fingerprint(0), String::new()),
            now: ServerKnowledge::default(),
            earlier: vec![ServerKnowledge::default()],
            conversation: Stored::default(),
            start: ServerKnowledge::default(),
            retries: RetryBudget::default(),
            has_checkpoint: false,
            has_text: false,
            unsaved: Vec::new(),
            disk: Stored::default(),
            file: Vec::new(),
            open: BTreeMap::new(),
            requests: 0,
            injected: Vec::new(),
            message_ids: Vec::new(),
            arrived: 0,
            in_history: BTreeSet::new(),
            executed: BTreeMap::new(),
            shown: String::new(),
            returned: Vec::new(),
            histories: vec![History::default()],
        }
    }

    fn take(&mut self, step: PromptStep) {
        match step {
            PromptStep::Continue => self.proceed(),
            PromptStep::Result => self.result(),
            PromptStep::Checkpoint { lag, is_readable } => self.checkpoint(lag, is_readable),
            PromptStep::Save => {
                self.save();
                let saved = self.unsaved.drain(..).map(FileEntry::InCheckpoint);
                self.file.extend(saved);
            }
            PromptStep::Inject => {
                self.arrived += 1;
                let text = format!("message {}", self.arrived);
                let message = UserMessage {
                    text,
                    ..UserMessage::default()
                };
                self.inject(message);
            }
            PromptStep::Report(report) => self.report(report),
            PromptStep::LoseStream { is_idle } => self.lose_stream(is_idle),
            PromptStep::RefuseCheckpoint => {
                self.finish_host_calls();
                self.unsaved.clear();
                self.file.push(FileEntry::CheckpointLost);
                self.conversation.coverage = None;
                let left = self.inbox.take_except(0);
                self.start_turn(left);
            }
            PromptStep::Kill => {
                self.finish_host_calls();
                self.unsaved.clear();
                self.effects = EffectLog::replay(&self.file);
                self.conversation = self.disk.clone();
                self.start_turn(self.disk.messages.clone());
            }
        }
    }

    fn changed(&mut self) {
        self.earlier.push(self.now.clone());
    }

    /// The server says its next sentence or requests the next command.
    fn proceed(&mut self) {
        let commands = 0..2 * self.now.sentences;
        let next = commands
            .into_iter()
            .find(|at| !self.now.requested.contains(at));
        // The model waits for a host call before it continues.
        let waits = self.open.values().any(|command| is_hosts(*command));
        match next {
            Some(command) if !waits => self.request(command),
            None if self.open.is_empty() && self.now.results == self.now.requested => {
                let Some(sentence) = SENTENCES.get(self.now.sentences) else {
                    return;
                };
                self.now.sentences += 1;
                self.changed();
                self.effects.model_progressed();
                self.has_text = true;
                let new = self.answer.text.take(sentence);
                self.show(&new);
            }
            _ => {}
        }
    }

    fn show(&mut self, text: &str) {
        self.shown.push_str(text);
        self.rounds.push(text);
    }

    fn request(&mut self, command: usize) {
        self.requests += 1;
        let (id, request) = (self.requests, request(command, self.requests));
        self.now.requested.insert(command);
        self.changed();
        if self.effects.recall(id, &request).is_some() {
            self.now.results.insert(command);
            return self.changed();
        }
        self.effects.server_progressed();
        *self.executed.entry(command).or_default() += 1;
        self.open.insert(id, command);
        if is_hosts(command) {
            self.effects
                .call_host(id, &request, &host_id(command), true);
            let held = self.answer.text.release();
            self.show(&held);
        } else {
            let digest = EffectDigest::of(&request).unwrap();
            self.file.push(FileEntry::Executing(digest));
            self.effects.execute(id, &request);
        }
    }

    fn result(&mut self) {
        let Some((id, command)) = self.open.pop_first() else {
            return;
        };
        let reply = if is_hosts(command) {
            self.host_returns(command);
            // The host asks for the rest of the answer with the result.
            let (at, text) = self.last_history();
            let known = self.conversation.coverage.clone();
            let known = known
                .filter(|(covered, _)| *covered == at)
                .map(|(_, known)| known);
            self.histories.push(History {
                results: self.returned.len(),
                text: self.shown.len(),
            });
            let results = Some(vec![host_id(command)]);
            let unshown = self.rounds.resume(
                fingerprint(at + 1),
                String::new(),
                results,
                known.as_deref(),
            );
            assert_eq!(unshown, None, "{text}: no checkpoint includes a new result");
            ExecReply::McpResult(McpResult::default())
        } else {
            ExecReply::ShellResult(ShellResult::default())
        };
        self.effects.reply(id, &reply);
        self.effects.end(RequestKey::Exec(id), &Ok(()));
        self.now.results.insert(command);
        self.changed();
    }

    fn host_returns(&mut self, command: usize) {
        if !self.returned.contains(&command) {
            self.returned.push(command);
        }
    }

    fn last_history(&self) -> (usize, usize) {
        let at = self.histories.len() - 1;
        (at, self.histories[at].text)
    }

    /// The same calls, in the same order, as for a checkpoint of a real run.
    fn checkpoint(&mut self, lag: usize, is_readable: bool) {
        let last = self.earlier.len() - 1;
        let mut state = self.earlier[last - lag.min(last)].clone();
        state.sentences = self.now.sentences;
        self.in_history.extend(state.messages.iter().cloned());
        self.earlier = vec![self.now.clone()];
        let pending: Vec<String> = (state.requested.difference(&state.results))
            .filter(|command| is_hosts(**command))
            .map(|command| format!("call {command}."))
            .collect();
        let contents = CheckpointContents {
            pending: PendingCalls::of(pending.iter().map(String::as_str)),
            finished: (state.results.iter().filter(|_| is_readable))
                .map(|command| format!("call {command}."))
                .collect(),
            messages: (self.message_ids.iter())
                .filter(|(text, _)| is_readable && state.messages.contains(text))
                .map(|(_, id)| id.to_string())
                .collect(),
        };
        self.unsaved.extend(self.effects.checkpoint(&contents));
        let held = self.answer.text.release();
        self.show(&held);
        self.answer.checkpoint();
        let unacknowledged = self.answer.text.unacknowledged();
        self.inbox.checkpoint(&contents.messages);
        let lacks = self.effects.lacks();
        let Coverage { history, answer } = self.rounds.checkpoint(&lacks, &unacknowledged);
        self.conversation.coverage = Some((history.len() - 1, answer));
        self.conversation.checkpoint = state;
        (self.has_checkpoint, self.has_text) = (true, false);
    }

    fn save(&mut self) {
        self.conversation.messages = self.inbox.separate();
        self.disk = self.conversation.clone();
    }

    fn inject(&mut self, message: UserMessage) {
        let now = Instant::now();
        let injection = self.inbox.inject(message, Source::Separate, now);
        self.save();
        let sent = (injection.message.text.clone(), injection.id);
        self.message_ids.push(sent);
        self.injected.push(injection);
    }

    fn report(&mut self, report: MessageReport) {
        let Some(id) = self.injected.first().map(|injection| injection.id) else {
            return;
        };
        let state = match report {
            MessageReport::Queued => State::Queued(ContextInjectionQueued {}),
            MessageReport::Delivered => {
                let text = self.injected.remove(0).message.text;
                self.now.messages.insert(text);
                State::Delivered(ContextInjectionDelivered::default())
            }
            MessageReport::Rejected => State::Rejected(ContextInjectionRejected::default()),
        };
        let is_delivered = matches!(report, MessageReport::Delivered);
        if is_delivered {
            self.changed();
            if self.open.is_empty() && self.now.results == self.now.requested {
                self.effects.model_progressed();
            }
        }
        if self.update(id, state) == InjectionStep::Release {
            self.send_separately();
        }
    }

    fn update(&mut self, id: Uuid, state: State) -> InjectionStep {
        self.inbox.report(&ContextInjectionStateUpdate {
            injection_id: id.to_string(),
            state: Some(ContextInjectionState { state: Some(state) }),
        })
    }

    /// A run that does not accept a message is replaced by one that starts with it.
    fn send_separately(&mut self) {
        self.finish_host_calls();
        let messages = self.inbox.take();
        let (at, text) = self.last_history();
        let answer = self.shown[text..].to_owned();
        let mut knows = self.knowledge_of_next_run();
        let texts = messages.iter().map(|unsaved| unsaved.message.text.clone());
        knows.messages.extend(texts);
        let start = self.next_start();
        self.effects = std::mem::take(&mut self.effects).for_next_run(start, true);
        self.rounds = AnswerRounds::new(fingerprint(at), answer);
        self.inbox = Inbox::default();
        self.inbox.start_with(messages);
        self.injected.clear();
        self.save();
        self.run_starts(knows);
    }

    /// Another turn answers the host's whole history, with the messages that no run has.
    fn start_turn(&mut self, messages: Vec<UserMessage>) {
        let knows = self.knowledge_of_next_run();
        let start = self.next_start();
        self.effects = std::mem::take(&mut self.effects).for_next_run(start, false);
        self.histories.push(History {
            results: self.returned.len(),
            text: self.shown.len(),
        });
        self.rounds = AnswerRounds::new(fingerprint(self.last_history().0), String::new());
        self.inbox = Inbox::default();
        self.injected.clear();
        self.run_starts(knows);
        messages
            .into_iter()
            .for_each(|message| self.inject(message));
    }

    fn next_start(&self) -> Start {
        match self.conversation.coverage {
            Some(_) => Start::State,
            None => Start::History,
        }
    }

    /// Returns what a new run knows: the checkpoint, and everything that follows the history which
    /// it covers; or the history.
    fn knowledge_of_next_run(&mut self) -> ServerKnowledge {
        let (mut knows, sent, is_text_known) = match &self.conversation.coverage {
            Some((covered, answer)) => {
                let History { results, text } = self.histories[*covered];
                let gap = compare(answer, &self.shown[text..]);
                assert!(!matches!(gap, AnswerGap::Unshown(_)), "{gap:?}");
                let is_sent = matches!(gap, AnswerGap::Unknown(_));
                let checkpoint = self.conversation.checkpoint.clone();
                (checkpoint, self.returned[results..].to_vec(), is_sent)
            }
            None => {
                let messages = self.in_history.clone();
                let knows = ServerKnowledge {
                    messages,
                    ..ServerKnowledge::default()
                };
                (knows, self.returned.clone(), true)
            }
        };
        knows.results.extend(sent);
        let shown = self.shown_sentences();
        if is_text_known {
            knows.sentences = shown;
        }
        self.answer = AnswerLog::default();
        knows
    }

    fn shown_sentences(&self) -> usize {
        let ends = |count: &usize| SENTENCES[..*count].concat().len() >= self.shown.len();
        (0..=SENTENCES.len()).find(ends).unwrap()
    }

    /// The same calls as when the stream of a real run fails.
    fn lose_stream(&mut self, is_idle: bool) {
        let text = if self.has_text {
            VisibleProgress::Something
        } else {
            VisibleProgress::Nothing
        };
        let progress = Progress {
            checkpoint: self.has_checkpoint.then(Bytes::new),
            shown: self.effects.visible_progress().max(text),
        };
        let failure = if is_idle {
            Failure::Idle(String::new())
        } else {
            Failure::Transport(String::new())
        };
        let knows = match self.retries.next(&PATIENT, &failure, progress, 0.0) {
            RetryDecision::GiveUp => {
                // The run fails, and the host asks again.
                self.finish_host_calls();
                let left = self.inbox.take_except(0);
                return self.start_turn(left);
            }
            RetryDecision::Repeat(_) => self.start.clone(),
            RetryDecision::Resume(..) => {
                let is_text_sent = is_idle || self.answer.is_marked_sent();
                self.knowledge_of_next_stream(is_text_sent)
            }
        };
        self.answer.restart();
        self.effects.restart();
        self.injected = self.inbox.reinject(Instant::now());
        self.stream_starts(knows);
    }

    /// Returns what a stream knows that continues from the checkpoint and may be sent the text since.
    fn knowledge_of_next_stream(&mut self, is_text_sent: bool) -> ServerKnowledge {
        let mut knows = self.conversation.checkpoint.clone();
        if is_text_sent && self.answer.mark_sent().is_some() {
            let results = self.effects.send_results();
            let sent = (0..2 * SENTENCES.len()).filter(|command| {
                let call = format!("call {command} ");
                results.iter().any(|result| result.contains(&call))
            });
            knows.results.extend(sent);
            knows.sentences = self.shown_sentences();
        }
        knows
    }

    fn run_starts(&mut self, knows: ServerKnowledge) {
        (self.start, self.retries) = (knows.clone(), RetryBudget::default());
        self.stream_starts(knows);
    }

    fn stream_starts(&mut self, knows: ServerKnowledge) {
        self.open.clear();
        (self.has_checkpoint, self.has_text) = (false, false);
        self.now = knows;
        self.now.requested.clone_from(&self.now.results);
        self.earlier = vec![self.now.clone()];
    }

    /// The host executes its calls to the end, and sends the results with its history.
    fn finish_host_calls(&mut self) {
        let calls: Vec<usize> = self.open.values().copied().collect();
        for command in calls.into_iter().filter(|command| is_hosts(*command)) {
            self.host_returns(command);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_effect_and_no_text_is_repeated_and_nothing_is_lost(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut world = PromptModel::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
