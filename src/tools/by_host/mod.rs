//! Cursor's own tools, done by the host's: the model asks for a read, the host runs its
//! `read`, with its own permissions and its own display.
//!
//! A request becomes one call of the host ([`calls`]), its result the typed one Cursor waits
//! for ([`results`]). What the host has no tool for is refused, and the refusal names the
//! tool that would do.

mod calls;
mod edits;
mod results;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bridge::content::Content;
use super::bridge::{Bridge, HostResult, Verdict};
use super::native::policy::Tool;
use super::refuse::{self, Refuse};
use super::{Executor, Replies, Request, Work};
use calls::Around;
pub use calls::HostTools;
use results::Extent;

/// Files whose text is remembered for edits.
const MOST_FILES: usize = 64;
/// Longer ones are not.
const MOST_BYTES: usize = 1024 * 1024;

/// What the host was last seen to have in a file.
#[derive(Debug, Clone)]
enum Seen {
    Whole(String),
    /// Only a part was shown: a write based on it would lose the rest.
    Part,
}

/// Has the host's tools do it.
pub struct ByHost {
    bridge: Arc<Bridge>,
    tools: HostTools,
    denied: BTreeSet<Tool>,
    workspace: PathBuf,
    refuse: Arc<Refuse>,
    seen: Mutex<HashMap<String, Seen>>,
}

impl ByHost {
    /// An executor that uses these tools of the host.
    pub fn new(
        bridge: Arc<Bridge>,
        tools: HostTools,
        denied: BTreeSet<Tool>,
        refuse: Refuse,
    ) -> Self {
        Self {
            bridge,
            tools,
            denied,
            workspace: refuse.facts.workspace.clone(),
            refuse: Arc::new(refuse),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a call showed or changed.
    fn note(&self, request: &Request, result: &HostResult) {
        let mut seen = self.seen();
        match request {
            Request::ReadArgs(args) if result.verdict == Verdict::Done => {
                let [Content::Text(text)] = &result.content[..] else {
                    return;
                };
                let file = results::file_text(text);
                let whole = file.extent == Extent::Whole
                    && args.offset.is_none()
                    && args.limit.is_none()
                    && text.len() <= MOST_BYTES;
                if seen.len() >= MOST_FILES {
                    seen.clear();
                }
                let shown = match whole {
                    true => Seen::Whole(text.clone()),
                    false if file.extent == Extent::Part => Seen::Part,
                    false => return,
                };
                seen.insert(args.path.clone(), shown);
            }
            Request::WriteArgs(args) => {
                seen.remove(&args.path);
            }
            Request::ReadArgs(_)
            | Request::LsArgs(_)
            | Request::GrepArgs(_)
            | Request::PiReadArgs(_)
            | Request::PiLsArgs(_)
            | Request::PiGrepArgs(_)
            | Request::PiFindArgs(_) => {}
            // A command may have changed anything.
            _ => seen.clear(),
        }
    }

    /// Whether a write would lose what the host's `read` did not show.
    fn loses(&self, request: &Request) -> bool {
        let Request::WriteArgs(args) = request else {
            return false;
        };
        matches!(self.seen().get(&args.path), Some(Seen::Part))
    }

    async fn refuse_loss(request: Request, replies: Replies) -> Result<(), super::Thrown> {
        let reason = "the host's read tool showed only a part of this file; writing it whole \
                      would lose the rest: change it with a command or an edit of the host";
        replies.send(refuse::refusal(request, reason.into())?).await;
        Ok(())
    }
}

impl Executor for ByHost {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let denied = Tool::of(&request).is_some_and(|tool| self.denied.contains(&tool));
        if !denied && self.loses(&request) {
            return Work {
                done: Box::pin(Self::refuse_loss(request, replies)),
                call: None,
            };
        }
        let whole = |path: &str| match self.seen().get(path) {
            Some(Seen::Whole(text)) => Some(text.clone()),
            _ => None,
        };
        let around = Around {
            tools: &self.tools,
            workspace: &self.workspace,
            seen: &whole,
        };
        let planned = match denied {
            true => None,
            false => calls::call(&request, &around),
        };
        let Some(planned) = planned else {
            return Arc::clone(&self.refuse).execute(request, replies, abort);
        };
        let (call, answer) = self.bridge.direct(planned.tool, planned.arguments, abort);
        let started = Instant::now();
        let done = async move {
            let result = answer.await;
            self.note(&request, &result);
            let workspace = self.workspace.to_string_lossy();
            for reply in results::replies(request, result, &workspace, started.elapsed())? {
                replies.send(reply).await;
            }
            Ok(())
        };
        Work {
            done: Box::pin(done),
            call: Some(call),
        }
    }
}
