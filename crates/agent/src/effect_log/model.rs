//! A model of server, host and process that checks the log after every step.
//!
//! The simulated model of the server works through a list of commands: on each stream it requests
//! the first one of which it does not know the result. A checkpoint contains what the server knew
//! at some time since the checkpoint before it arrived, because checkpoints are late: text that the
//! model wrote since says nothing about it. Streams are lost, checkpoints abandoned, processes
//! killed.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use cursor_proto::agent::v1::{McpArgs, McpResult, ShellArgs, ShellResult};
use cursor_proto::state::PendingCalls;

/// How many different commands there are. Those with an odd number are executed by the host.
const COMMANDS: usize = 8;

#[derive(Debug, Clone, Copy)]
enum EffectStep {
    /// The server requests the next command.
    Request,
    /// The oldest open command ends.
    Result,
    /// The model writes text.
    Text,
    /// A checkpoint arrives, taken this many snapshots ago if there are as many.
    Checkpoint { lag: usize },
    /// The checkpoint is written to disk, then the log.
    Save,
    /// The stream is lost and the run continues from the newest checkpoint.
    LoseStream,
    /// The server refuses the checkpoint, and the history is sent in a new run.
    GiveUpCheckpoint,
    /// The user adds a message, which a new run answers.
    NewRun,
    /// The process is killed; another one reads the file and starts from the stored checkpoint.
    Kill,
}

fn step() -> impl Strategy<Value = EffectStep> {
    prop_oneof![
        6 => Just(EffectStep::Request),
        6 => Just(EffectStep::Result),
        3 => Just(EffectStep::Text),
        4 => (0..3_usize).prop_map(|lag| EffectStep::Checkpoint { lag }),
        3 => Just(EffectStep::Save),
        2 => Just(EffectStep::LoseStream),
        1 => Just(EffectStep::GiveUpCheckpoint),
        1 => Just(EffectStep::NewRun),
        1 => Just(EffectStep::Kill),
    ]
}

/// What the server knows: requested commands, and those of which it has the result.
#[derive(Debug, Clone, Default, PartialEq)]
struct Knowledge {
    requested: BTreeSet<usize>,
    results: BTreeSet<usize>,
}

#[derive(Default)]
struct EffectModel {
    log: EffectLog,
    /// What the log's file contains.
    file: Vec<FileEntry>,
    /// The server's knowledge on the current stream.
    now: Knowledge,
    /// Its earlier knowledge on this stream, since the last checkpoint arrived.
    snapshots: Vec<Knowledge>,
    checkpoint: Knowledge,
    /// Effects the newest checkpoint includes that the file does not say yet.
    unsaved: Vec<EffectDigest>,
    stored_checkpoint: Knowledge,
    /// Commands being executed, by the number of their request.
    open: BTreeMap<u32, usize>,
    requests: u32,
    /// How often each command was executed.
    executed: BTreeMap<usize, usize>,
    /// Commands whose result the host's transcript contains.
    transcript: BTreeSet<usize>,
}

fn is_hosts(command: usize) -> bool {
    command % 2 == 1
}

fn host_id(command: usize) -> String {
    format!("host-{command}")
}

/// Returns the request for a command. Each stream has call ids of its own, but for host calls.
fn request(command: usize, number: u32) -> ExecRequest {
    if is_hosts(command) {
        ExecRequest::McpArgs(McpArgs {
            name: format!("tool {command}"),
            tool_call_id: format!("call {command}."),
            ..McpArgs::default()
        })
    } else {
        ExecRequest::ShellArgs(ShellArgs {
            command: format!("command {command}"),
            tool_call_id: format!("call {command} {number}."),
            ..ShellArgs::default()
        })
    }
}

impl EffectModel {
    fn take(&mut self, step: EffectStep) {
        match step {
            EffectStep::Request => self.request(),
            EffectStep::Result => self.result(),
            EffectStep::Text => {
                if self.open.is_empty() && self.now.results == self.now.requested {
                    self.log.model_progressed();
                }
            }
            EffectStep::Checkpoint { lag } => self.arrive(lag),
            EffectStep::Save => {
                self.stored_checkpoint = self.checkpoint.clone();
                let saved = self.unsaved.drain(..).map(FileEntry::InCheckpoint);
                self.file.extend(saved);
            }
            EffectStep::LoseStream => {
                // A run is not retried while something is executed, here or by the host.
                if self.open.is_empty() {
                    self.log.restart();
                    self.resume(self.checkpoint.clone());
                }
            }
            EffectStep::GiveUpCheckpoint => {
                self.finish_host_calls();
                self.unsaved.clear();
                self.file.push(FileEntry::CheckpointLost);
                let history = self.history();
                self.start_run(Start::History, false, history);
            }
            EffectStep::NewRun => {
                self.finish_host_calls();
                let mut state = self.checkpoint.clone();
                // The owner of the run sends it the host's results.
                state.results.extend(&self.transcript);
                state.requested.extend(&self.transcript);
                self.start_run(Start::State, true, state);
            }
            EffectStep::Kill => {
                self.finish_host_calls();
                self.log = EffectLog::replay(&self.file);
                self.unsaved.clear();
                let mut state = self.stored_checkpoint.clone();
                state.results.extend(&self.transcript);
                state.requested.extend(&self.transcript);
                self.start_run(Start::State, false, state);
            }
        }
    }

    /// The host executes its calls to the end, and asks for the next run with their results.
    fn finish_host_calls(&mut self) {
        let calls = self.open.values().filter(|command| is_hosts(**command));
        self.transcript.extend(calls);
    }

    /// Returns what a run knows that is sent the host's transcript.
    fn history(&self) -> Knowledge {
        Knowledge {
            requested: self.transcript.clone(),
            results: self.transcript.clone(),
        }
    }

    fn start_run(&mut self, start: Start, has_user_input: bool, knows: Knowledge) {
        self.log = std::mem::take(&mut self.log).for_next_run(start, has_user_input);
        self.resume(knows);
    }

    fn resume(&mut self, knows: Knowledge) {
        self.open.clear();
        self.checkpoint = knows.clone();
        self.now = knows;
        self.now.requested.clone_from(&self.now.results);
        self.snapshots = vec![self.now.clone()];
    }

    fn changed(&mut self) {
        self.snapshots.push(self.now.clone());
    }

    fn request(&mut self) {
        let next = (0..COMMANDS).find(|command| !self.now.requested.contains(command));
        // The model waits for a host call before it continues.
        let waits = self.open.values().any(|command| is_hosts(*command));
        let Some(command) = next.filter(|_| !waits) else {
            return;
        };
        self.requests += 1;
        let (id, request) = (self.requests, request(command, self.requests));
        self.now.requested.insert(command);
        self.changed();
        if self.log.recall(id, &request).is_some() {
            self.now.results.insert(command);
            self.changed();
        } else {
            self.log.server_progressed();
            *self.executed.entry(command).or_default() += 1;
            self.open.insert(id, command);
            if is_hosts(command) {
                self.log.call_host(id, &request, &host_id(command), true);
            } else {
                let digest = EffectDigest::of(&request).unwrap();
                self.file.push(FileEntry::Executing(digest));
                self.log.execute(id, &request);
            }
        }
    }

    fn result(&mut self) {
        let Some((id, command)) = self.open.pop_first() else {
            return;
        };
        let reply = if is_hosts(command) {
            self.transcript.insert(command);
            ExecReply::McpResult(McpResult::default())
        } else {
            ExecReply::ShellResult(ShellResult::default())
        };
        self.log.reply(id, &reply);
        self.log.end(RequestKey::Exec(id), &Ok(()));
        self.now.results.insert(command);
        self.changed();
    }

    fn arrive(&mut self, lag: usize) {
        let at = self.snapshots.len() - 1 - lag.min(self.snapshots.len() - 1);
        let state = self.snapshots[at].clone();
        self.snapshots = vec![self.now.clone()];
        let pending: Vec<String> = (state.requested.difference(&state.results))
            .filter(|command| is_hosts(**command))
            .map(|command| format!("call {command}."))
            .collect();
        let contents = CheckpointContents {
            pending: PendingCalls::of(pending.iter().map(String::as_str)),
            ..CheckpointContents::default()
        };
        self.unsaved.extend(self.log.checkpoint(&contents));
        self.checkpoint = state;
        let lacks = self.log.lacks();
        for command in self.transcript.intersection(&self.now.results) {
            let is_lacked = !self.checkpoint.results.contains(command);
            let is_reported = lacks.contains(&host_id(*command));
            assert!(
                is_reported || !is_lacked,
                "the checkpoint lacks {command}: {lacks:?}"
            );
        }
    }

    /// The invariants of the log.
    fn check(&self) {
        for (command, times) in &self.executed {
            assert_eq!(*times, 1, "command {command} was executed {times} times");
        }
        // Whatever a stream knows was executed: no result is invented.
        for command in &self.now.results {
            assert!(
                self.executed.contains_key(command),
                "{command} was never executed"
            );
        }
        // A command that was executed and that the stream does not know is answered from the
        // record or by the host's transcript.
        for command in self.executed.keys() {
            let is_open = self.open.values().any(|open| open == command);
            let is_known = is_open || self.now.requested.contains(command);
            if !is_known && !is_hosts(*command) {
                let request = request(*command, 0);
                let recorded = self.log.clone().recall(0, &request);
                assert!(recorded.is_some(), "the result of {command} is unknown");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_command_is_executed_twice_and_every_result_is_known(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = EffectModel {
            snapshots: vec![Knowledge::default()],
            ..EffectModel::default()
        };
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
