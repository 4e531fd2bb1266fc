//! The open exec requests of one stream: their tasks and their heartbeats.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::effect_log::Replay;
use agent_tools::bridge::HostCall;
use agent_tools::{ExecError, ExecOutput, ExecReply, ExecRequest, Executor, ReplySender};
use cursor_proto::agent::v1::{
    AgentClientMessage, ExecClientControlMessage, ExecClientHeartbeat, ExecClientMessage,
    ExecClientStreamClose, ExecClientThrow, agent_client_message, exec_client_control_message,
};
use foundation::VariantName;

/// Replies that may be queued for the stream before executors have to wait.
const REPLIES: usize = 64;
/// Requests executed here concurrently; others wait, because each holds its result until the
/// stream has sent it. Host tool calls are not counted.
const MAX_WORKING: usize = 256;
/// Open requests at most, including those that wait and those the host executes.
pub(super) const MAX_OPEN: usize = 20_000;

/// Open requests. Dropping this aborts all of them.
pub(super) struct OpenExecs {
    executor: Arc<dyn Executor>,
    /// By task, because a server may use an id twice.
    open: HashMap<Id, OpenExec>,
    tasks: JoinSet<Result<(), ExecError>>,
    sender: mpsc::Sender<(u32, ExecOutput)>,
    replies: mpsc::Receiver<(u32, ExecOutput)>,
    interval: Duration,
    permits: Arc<Semaphore>,
    done: VecDeque<(OpenExec, Result<(), ExecError>)>,
}

struct OpenExec {
    id: u32,
    /// For the log; empty if debug logging is off.
    kind: String,
    started: Instant,
    beat: Instant,
    abort: CancellationToken,
}

impl OpenExec {
    fn log_end(&self, result: &Result<(), ExecError>, now: Instant) {
        let outcome = match result {
            Ok(()) if self.abort.is_cancelled() => "aborted",
            Ok(()) => "done",
            Err(_) => "thrown",
        };
        let ms = now.duration_since(self.started).as_millis() as u64;
        tracing::debug!(
            exec = self.id,
            kind = self.kind,
            outcome,
            ms,
            "exec.answered"
        );
    }
}

impl Drop for OpenExecs {
    fn drop(&mut self) {
        self.abort_all();
    }
}

/// What an open request produced.
pub(super) enum ExecEvent {
    /// A reply to the server.
    Reply(u32, Box<ExecReply>),
    /// A host tool call; nothing is sent to the server for it.
    Call(u32, HostCall),
    /// The end of a request, with its error if it failed.
    Done(u32, Result<(), ExecError>),
}

impl ExecEvent {
    fn of(id: u32, output: ExecOutput) -> Self {
        match output {
            ExecOutput::Reply(reply) => Self::Reply(id, reply),
            ExecOutput::Call(call) => Self::Call(id, call),
        }
    }
}

impl OpenExecs {
    pub(super) fn new(executor: Arc<dyn Executor>, interval: Duration) -> Self {
        let (sender, replies) = mpsc::channel(REPLIES);
        Self {
            executor,
            open: HashMap::new(),
            tasks: JoinSet::new(),
            sender,
            replies,
            interval,
            permits: Arc::new(Semaphore::new(MAX_WORKING)),
            done: VecDeque::new(),
        }
    }

    /// Starts executing a request. Returns the host tool call if the host must execute it.
    pub(super) fn start(
        &mut self,
        id: u32,
        request: ExecRequest,
        now: Instant,
    ) -> Option<HostCall> {
        let mut kind = String::new();
        if tracing::enabled!(tracing::Level::DEBUG) {
            kind = VariantName(&request).to_string();
            tracing::debug!(exec = id, kind, "exec.asked");
        }
        let abort = CancellationToken::new();
        let replies = ReplySender::new(id, self.sender.clone());
        let work = Arc::clone(&self.executor).execute(request, replies, abort.clone());
        let task = if work.call.is_some() {
            self.tasks.spawn(work.done)
        } else {
            let (permits, abort) = (Arc::clone(&self.permits), abort.clone());
            self.tasks.spawn(async move {
                // A request that is aborted while it waits ends at once.
                let _permit = tokio::select! {
                    permit = permits.acquire_owned() => permit.ok(),
                    () = abort.cancelled() => None,
                };
                work.done.await
            })
        };
        self.open.insert(
            task.id(),
            OpenExec {
                id,
                kind,
                started: now,
                beat: now + self.interval,
                abort,
            },
        );
        work.call
    }

    /// Returns whether no more requests are accepted until some are answered.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= MAX_OPEN
    }

    /// Returns whether no request is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.done.is_empty()
    }

    /// Aborts all open requests.
    pub(super) fn abort_all(&self) {
        for open in self.open.values() {
            open.abort.cancel();
        }
    }

    /// Aborts a request because the server no longer wants its result.
    pub(super) fn abort(&self, id: u32) {
        for open in self.open.values().filter(|open| open.id == id) {
            open.abort.cancel();
        }
    }

    /// Returns the next reply or end. Cancel-safe.
    pub(super) async fn next(&mut self) -> ExecEvent {
        loop {
            // A finished executor has sent all its replies, which must precede its end.
            if let Ok((id, output)) = self.replies.try_recv() {
                return ExecEvent::of(id, output);
            }
            if let Some((open, result)) = self.done.pop_front() {
                open.log_end(&result, Instant::now());
                return ExecEvent::Done(open.id, result);
            }
            tokio::select! {
                Some((id, output)) = self.replies.recv() => return ExecEvent::of(id, output),
                Some(done) = self.tasks.join_next_with_id() => {
                    let (task, result) = match done {
                        Ok((task, result)) => (task, result),
                        Err(error) => (error.id(), Err(ExecError("the tool crashed".into()))),
                    };
                    if let Some(open) = self.open.remove(&task) {
                        self.done.push_back((open, result));
                    }
                }
                else => std::future::pending::<()>().await,
            }
        }
    }

    /// Returns the frames that report `progress` to the server.
    pub(super) fn frames(&self, progress: ExecEvent, now: Instant) -> Vec<AgentClientMessage> {
        match progress {
            ExecEvent::Reply(id, reply) => {
                let done = self.done.iter().map(|(open, _)| open);
                let mut known = self.open.values().chain(done);
                let open = known.find(|open| open.id == id);
                let started = open.map_or(now, |open| open.started);
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
            ExecEvent::Call(..) => Vec::new(),
            ExecEvent::Done(id, result) => {
                let mut frames = Vec::with_capacity(2);
                if let Err(ExecError(error)) = result {
                    frames.push(throw(id, error));
                }
                frames.push(close(id));
                frames
            }
        }
    }

    /// Returns when the next heartbeat is due.
    pub(super) fn next_beat(&self) -> Option<Instant> {
        self.open.values().map(|open| open.beat).min()
    }

    /// Returns the heartbeats that are due.
    pub(super) fn beat(&mut self, now: Instant) -> Vec<AgentClientMessage> {
        let mut frames = Vec::new();
        for open in self.open.values_mut().filter(|open| open.beat <= now) {
            open.beat = now + self.interval;
            frames.push(control(exec_client_control_message::Message::Heartbeat(
                ExecClientHeartbeat { id: open.id },
            )));
        }
        frames
    }
}

/// Returns the frames that replay a recorded result.
pub(super) fn replayed_frames(id: u32, replay: Replay) -> Vec<AgentClientMessage> {
    let replies = replay.replies.into_iter().map(|reply| AgentClientMessage {
        message: Some(agent_client_message::Message::ExecClientMessage(
            ExecClientMessage {
                id,
                message: Some(reply),
                ..ExecClientMessage::default()
            },
        )),
    });
    let thrown = replay.end.err().map(|ExecError(error)| throw(id, error));
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
    use agent_tools::ExecTask;
    use agent_tools::rejection::Rejector;
    use cursor_proto::agent::v1::McpStateExecArgs;

    /// Runs until it is aborted.
    struct Endless;

    impl Executor for Endless {
        fn execute(
            self: Arc<Self>,
            _: ExecRequest,
            _: ReplySender,
            abort: CancellationToken,
        ) -> ExecTask {
            ExecTask {
                done: Box::pin(async move {
                    abort.cancelled().await;
                    Ok(())
                }),
                call: None,
            }
        }
    }

    #[tokio::test]
    async fn two_requests_with_one_id_each_have_heartbeats_and_an_end() {
        let beat = Duration::from_secs(3);
        let mut execs = OpenExecs::new(Arc::new(Endless), beat);
        let now = Instant::now();
        for _ in 0..2 {
            let request = ExecRequest::McpStateExecArgs(McpStateExecArgs::default());
            execs.start(7, request, now);
        }
        assert_eq!(execs.beat(now + beat).len(), 2);
        execs.abort(7);
        for _ in 0..2 {
            let done = execs.next().await;
            assert!(matches!(done, ExecEvent::Done(7, Ok(()))));
        }
        assert!(execs.is_empty());
    }

    /// Counts how many requests are executed concurrently.
    #[derive(Default)]
    struct Counting {
        now: std::sync::atomic::AtomicUsize,
        most: std::sync::atomic::AtomicUsize,
    }

    impl Executor for Counting {
        fn execute(
            self: Arc<Self>,
            _: ExecRequest,
            _: ReplySender,
            _: CancellationToken,
        ) -> ExecTask {
            use std::sync::atomic::Ordering::SeqCst;
            ExecTask {
                done: Box::pin(async move {
                    let now = self.now.fetch_add(1, SeqCst) + 1;
                    self.most.fetch_max(now, SeqCst);
                    tokio::task::yield_now().await;
                    self.now.fetch_sub(1, SeqCst);
                    Ok(())
                }),
                call: None,
            }
        }
    }

    #[tokio::test]
    async fn concurrency_is_limited_and_all_requests_end() {
        const COUNT: u32 = 1_000;
        let counting = Arc::new(Counting::default());
        let executor: Arc<dyn Executor> = Arc::clone(&counting) as _;
        let mut execs = OpenExecs::new(executor, Duration::from_secs(3));
        for id in 0..COUNT {
            let request = ExecRequest::McpStateExecArgs(McpStateExecArgs::default());
            execs.start(id, request, Instant::now());
        }
        for _ in 0..COUNT {
            assert!(matches!(execs.next().await, ExecEvent::Done(_, Ok(()))));
        }
        let most = counting.most.load(std::sync::atomic::Ordering::SeqCst);
        assert!((2..=MAX_WORKING).contains(&most), "{most}");
    }

    #[tokio::test]
    async fn a_waiting_request_can_be_aborted() {
        let mut execs = OpenExecs::new(Arc::new(Endless), Duration::from_secs(3));
        let last = MAX_WORKING as u32;
        for id in 0..=last {
            let request = ExecRequest::McpStateExecArgs(McpStateExecArgs::default());
            execs.start(id, request, Instant::now());
        }
        execs.abort(last);
        let ExecEvent::Done(ended, Ok(())) = execs.next().await else {
            panic!("the request does not end");
        };
        assert_eq!(ended, last);
    }

    /// With two worker threads, an executor may finish between two polls of its replies.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn replies_precede_the_end_of_a_request() {
        const COUNT: u32 = 2_000;
        let mut execs = OpenExecs::new(Arc::new(Rejector::default()), Duration::from_secs(3));
        let mut replied = std::collections::BTreeSet::new();
        let mut ended = 0;
        for id in 0..COUNT {
            let request = ExecRequest::McpStateExecArgs(McpStateExecArgs::default());
            execs.start(id, request, Instant::now());
        }
        while ended < COUNT {
            match execs.next().await {
                ExecEvent::Reply(id, _) => assert!(replied.insert(id), "{id} replied twice"),
                ExecEvent::Call(_, call) => panic!("unexpected call: {call:?}"),
                ExecEvent::Done(id, result) => {
                    assert_eq!(result, Ok(()));
                    assert!(replied.contains(&id), "{id} ended before its result");
                    ended += 1;
                }
            }
        }
        assert_eq!(replied.len(), COUNT as usize);
    }
}
