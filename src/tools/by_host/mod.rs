//! Cursor's own tools, done by the host's: the model asks for a read, the host runs its
//! `read`, with its own permissions and its own display.
//!
//! A request becomes one call of the host ([`calls`]), its result the typed one Cursor waits
//! for ([`results`]). What the host has no tool for is refused, and the refusal names the
//! tool that would do.

mod calls;
mod edits;
mod listing;
mod places;
mod results;
mod seen;

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bridge::Bridge;
use super::native::forbidden::{self, Forbidden};
use super::refuse::{self, Refuse};
use super::{Executor, Replies, Request, Work};
use calls::Around;
pub use calls::HostTools;
use listing::Target;
use places::Places;
pub use seen::Seen;

/// Has the host's tools do it.
pub struct ByHost {
    bridge: Arc<Bridge>,
    tools: HostTools,
    places: Places,
    refuse: Arc<Refuse>,
    seen: Arc<Seen>,
}

impl ByHost {
    /// An executor that uses these tools of the host, and knows what they have shown before.
    pub fn new(bridge: Arc<Bridge>, tools: HostTools, seen: Arc<Seen>, refuse: Refuse) -> Self {
        Self {
            bridge,
            tools,
            places: Places {
                workspace: refuse.facts.workspace.clone(),
                home: refuse.facts.home.clone(),
            },
            refuse: Arc::new(refuse),
            seen,
        }
    }

    /// Whether a write would lose what the host's `read` did not show.
    fn loses(&self, request: &Request) -> bool {
        let Request::WriteArgs(args) = request else {
            return false;
        };
        self.seen.is_part(&self.places.of(&args.path))
    }

    /// What a search looks through: the host names files by it.
    async fn target(&self, request: &Request) -> Target {
        let Request::GrepArgs(args) = request else {
            return Target::Folder;
        };
        let place = self.places.of(args.path.as_deref().unwrap_or_default());
        let metadata = tokio::fs::metadata(place).await;
        match metadata.is_ok_and(|metadata| metadata.is_file()) {
            true => Target::File,
            false => Target::Folder,
        }
    }

    /// Asks whether a command may run before the host is asked to run it.
    async fn if_allowed(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Result<(), super::Thrown> {
        if let Some(args) = forbidden::command(&request)
            && let Some(forbidden) = Forbidden::of(args).await
        {
            for reply in forbidden.replies(request) {
                replies.send(reply).await;
            }
            return Ok(());
        }
        let work = self.hand_over(request, replies.clone(), abort);
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        work.done.await
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
        if self.loses(&request) {
            return Work {
                done: Box::pin(Self::refuse_loss(request, replies)),
                call: None,
            };
        }
        if forbidden::command(&request).is_some_and(forbidden::is_in_doubt) {
            return Work {
                done: Box::pin(self.if_allowed(request, replies, abort)),
                call: None,
            };
        }
        self.hand_over(request, replies, abort)
    }
}

impl ByHost {
    /// Has the host do it.
    fn hand_over(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let whole = |path: &str| self.seen.text(&self.places.of(path));
        let around = Around {
            tools: &self.tools,
            workspace: &self.places.workspace,
            seen: &whole,
        };
        let Some(planned) = calls::call(&request, &around) else {
            return Arc::clone(&self.refuse).execute(request, replies, abort);
        };
        let (call, answer) = self.bridge.direct(planned.tool, planned.arguments, abort);
        let started = Instant::now();
        let done = async move {
            let result = answer.await;
            self.seen.note(&request, &result, &self.places);
            let (target, took) = (self.target(&request).await, started.elapsed());
            for reply in results::replies(request, result, &self.places, target, took)? {
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
