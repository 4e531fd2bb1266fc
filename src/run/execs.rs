//! The open requests of one stream: who works on them, when they last beat.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::memo::Done;
use crate::diag::Variant;
use crate::tools::bridge::HostCall;
use crate::tools::{Executor, Replies, Reply, Request, Said, Thrown};
use crate::wire::proto::agent::v1::{
    AgentClientMessage, ExecClientControlMessage, ExecClientHeartbeat, ExecClientMessage,
    ExecClientStreamClose, ExecClientThrow, agent_client_message, exec_client_control_message,
};

/// Results that may wait for the stream before executors have to.
const REPLIES: usize = 64;

/// Requests being worked on. Dropping this ends all of them.
pub(super) struct Execs {
    executor: Arc<dyn Executor>,
    open: BTreeMap<u32, Open>,
    ids: HashMap<Id, u32>,
    tasks: JoinSet<Result<(), Thrown>>,
    sender: mpsc::Sender<(u32, Said)>,
    replies: mpsc::Receiver<(u32, Said)>,
    interval: Duration,
    done: VecDeque<(u32, Result<(), Thrown>)>,
}

struct Open {
    /// For the log; empty when there is none.
    kind: String,
    started: Instant,
    beat: Instant,
    abort: CancellationToken,
}

impl Open {
    fn tell_end(&self, id: u32, result: &Result<(), Thrown>, now: Instant) {
        let outcome = match result {
            Ok(()) if self.abort.is_cancelled() => "aborted",
            Ok(()) => "done",
            Err(_) => "thrown",
        };
        let ms = now.duration_since(self.started).as_millis() as u64;
        tracing::debug!(exec = id, kind = self.kind, outcome, ms, "exec.answered");
    }
}

impl Drop for Execs {
    fn drop(&mut self) {
        self.abort_all();
    }
}

/// Something of an exec that goes to the server.
pub(super) enum Progress {
    /// A result.
    Reply(u32, Box<Reply>),
    /// Something the host has to do; nothing for the server.
    Call(u32, HostCall),
    /// The end of an exec, with what it failed with.
    Done(u32, Result<(), Thrown>),
}

impl Progress {
    fn of(id: u32, said: Said) -> Self {
        match said {
            Said::Reply(reply) => Self::Reply(id, reply),
            Said::Call(call) => Self::Call(id, call),
        }
    }
}

impl Execs {
    pub(super) fn new(executor: Arc<dyn Executor>, interval: Duration) -> Self {
        let (sender, replies) = mpsc::channel(REPLIES);
        Self {
            executor,
            open: BTreeMap::new(),
            ids: HashMap::new(),
            tasks: JoinSet::new(),
            sender,
            replies,
            interval,
            done: VecDeque::new(),
        }
    }

    /// Starts work on a request; gives what the host has to do for it.
    pub(super) fn start(&mut self, id: u32, request: Request, now: Instant) -> Option<HostCall> {
        let mut kind = String::new();
        if tracing::enabled!(tracing::Level::DEBUG) {
            kind = Variant(&request).to_string();
            tracing::debug!(exec = id, kind, "exec.asked");
        }
        let abort = CancellationToken::new();
        let replies = Replies::new(id, self.sender.clone());
        let work = Arc::clone(&self.executor).execute(request, replies, abort.clone());
        let task = self.tasks.spawn(work.done);
        self.ids.insert(task.id(), id);
        self.open.insert(
            id,
            Open {
                kind,
                started: now,
                beat: now + self.interval,
                abort,
            },
        );
        work.call
    }

    /// Whether nothing is being worked on.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Nobody wants any result any more.
    pub(super) fn abort_all(&self) {
        for open in self.open.values() {
            open.abort.cancel();
        }
    }

    /// The server wants no result any more.
    pub(super) fn abort(&self, id: u32) {
        if let Some(open) = self.open.get(&id) {
            open.abort.cancel();
        }
    }

    /// The next result or end. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Progress {
        loop {
            // An executor that is done has sent all its results before: they go first.
            if let Ok((id, said)) = self.replies.try_recv() {
                return Progress::of(id, said);
            }
            if let Some((id, result)) = self.done.pop_front() {
                return Progress::Done(id, result);
            }
            tokio::select! {
                Some((id, said)) = self.replies.recv() => return Progress::of(id, said),
                Some(done) = self.tasks.join_next_with_id() => {
                    let (task, result) = match done {
                        Ok((task, result)) => (task, result),
                        Err(error) => (error.id(), Err(Thrown("the tool crashed".into()))),
                    };
                    if let Some(id) = self.ids.remove(&task) {
                        self.done.push_back((id, result));
                    }
                }
                else => std::future::pending::<()>().await,
            }
        }
    }

    /// The frames that tell the server of `progress`.
    pub(super) fn frames(&mut self, progress: Progress, now: Instant) -> Vec<AgentClientMessage> {
        match progress {
            Progress::Reply(id, reply) => {
                let started = self.open.get(&id).map_or(now, |open| open.started);
                let elapsed = now.duration_since(started).as_millis();
                vec![AgentClientMessage {
                    message: Some(agent_client_message::Message::ExecClientMessage(
                        ExecClientMessage {
                            id,
                            message: Some(*reply),
                            local_execution_time_ms: Some(
                                i32::try_from(elapsed).unwrap_or(i32::MAX),
                            ),
                            ..ExecClientMessage::default()
                        },
                    )),
                }]
            }
            Progress::Call(..) => Vec::new(),
            Progress::Done(id, result) => {
                if let Some(open) = self.open.remove(&id) {
                    open.tell_end(id, &result, now);
                }
                let mut frames = Vec::with_capacity(2);
                if let Err(Thrown(error)) = result {
                    frames.push(throw(id, error));
                }
                frames.push(close(id));
                frames
            }
        }
    }

    /// When the next heartbeat is due.
    pub(super) fn next_beat(&self) -> Option<Instant> {
        self.open.values().map(|open| open.beat).min()
    }

    /// Heartbeats of every exec that is due one.
    pub(super) fn beat(&mut self, now: Instant) -> Vec<AgentClientMessage> {
        let mut frames = Vec::new();
        for (&id, open) in &mut self.open {
            if open.beat <= now {
                open.beat = now + self.interval;
                frames.push(control(exec_client_control_message::Message::Heartbeat(
                    ExecClientHeartbeat { id },
                )));
            }
        }
        frames
    }
}

/// The frames that tell the server what a request came to the first time.
pub(super) fn again(id: u32, done: Done) -> Vec<AgentClientMessage> {
    let replies = done.replies.into_iter().map(|reply| AgentClientMessage {
        message: Some(agent_client_message::Message::ExecClientMessage(
            ExecClientMessage {
                id,
                message: Some(reply),
                ..ExecClientMessage::default()
            },
        )),
    });
    let thrown = done.end.err().map(|Thrown(error)| throw(id, error));
    replies.chain(thrown).chain([close(id)]).collect()
}

pub(super) fn throw(id: u32, error: String) -> AgentClientMessage {
    control(exec_client_control_message::Message::Throw(
        ExecClientThrow {
            id,
            error,
            stack_trace: None,
            error_code: None,
        },
    ))
}

pub(super) fn close(id: u32) -> AgentClientMessage {
    control(exec_client_control_message::Message::StreamClose(
        ExecClientStreamClose { id },
    ))
}

fn control(message: exec_client_control_message::Message) -> AgentClientMessage {
    AgentClientMessage {
        message: Some(agent_client_message::Message::ExecClientControlMessage(
            ExecClientControlMessage {
                message: Some(message),
            },
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::refuse::Refuse;
    use crate::wire::proto::agent::v1::McpStateExecArgs;

    /// On two workers an executor may finish between two looks at its results.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn results_precede_their_end() {
        const COUNT: u32 = 2_000;
        let mut execs = Execs::new(Arc::new(Refuse::default()), Duration::from_secs(3));
        let mut replied = std::collections::BTreeSet::new();
        let mut ended = 0;
        for id in 0..COUNT {
            let request = Request::McpStateExecArgs(McpStateExecArgs::default());
            execs.start(id, request, Instant::now());
        }
        while ended < COUNT {
            match execs.next().await {
                Progress::Reply(id, _) => assert!(replied.insert(id), "{id} replied twice"),
                Progress::Call(_, call) => panic!("nobody calls: {call:?}"),
                Progress::Done(id, result) => {
                    assert_eq!(result, Ok(()));
                    assert!(replied.contains(&id), "{id} ended before its result");
                    ended += 1;
                }
            }
        }
        assert_eq!(replied.len(), COUNT as usize);
    }
}
