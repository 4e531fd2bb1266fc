//! Executes Cursor's own tools with the host's tools: when the model asks for a read, the host
//! runs its `read`, with its own permissions and display.
//!
//! A request becomes one call of the host ([`calls`]), and its result becomes the typed result
//! Cursor expects ([`results`]). A request without a suitable host tool is refused, and the
//! refusal names the tool that would be needed.

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
use super::native::guard::Guard;
use super::native::policy::{Decision, Tool};
use super::permission::CurrentTools;
use super::refuse::{self, Refuse};
use super::{Executor, Replies, Request, Work};
use calls::Around;
pub use calls::HostTools;
use listing::Target;
use places::Places;
pub use seen::Seen;

/// Maximum size in bytes of a file whose change is sent as an edit; a larger one is written
/// whole.
const MAX_EDITED: u64 = 1024 * 1024;

/// An executor that uses the host's tools.
pub struct ByHost {
    bridge: Arc<Bridge>,
    current: CurrentTools,
    places: Places,
    refuse: Arc<Refuse>,
    seen: Arc<Seen>,
    guard: Arc<Guard>,
}

impl ByHost {
    /// Creates an executor that uses the host's active tools and knows what they have shown
    /// before.
    pub fn new(
        bridge: Arc<Bridge>,
        current: CurrentTools,
        seen: Arc<Seen>,
        refuse: Refuse,
        guard: Arc<Guard>,
    ) -> Self {
        Self {
            bridge,
            current,
            places: Places {
                workspace: refuse.facts.workspace.clone(),
                home: refuse.facts.home.clone(),
            },
            refuse: Arc::new(refuse),
            seen,
            guard,
        }
    }

    /// Returns whether a write would lose content that the host's `read` did not show.
    fn would_lose_content(&self, request: &Request) -> bool {
        let Request::WriteArgs(args) = request else {
            return false;
        };
        self.seen.is_part(&self.places.of(&args.path))
    }

    /// Returns what a search is executed on, because it decides how the host names files.
    async fn target(&self, request: &Request) -> Target {
        let Request::GrepArgs(args) = request else {
            return Target::Folder;
        };
        let place = self.places.of(args.path.as_deref().unwrap_or_default());
        let metadata = tokio::fs::metadata(place).await;
        if metadata.is_ok_and(|metadata| metadata.is_file()) {
            Target::File
        } else {
            Target::Folder
        }
    }

    /// Returns the current text of the file that a request writes: what the host has shown of it,
    /// or the file on disk if reads are executed locally, because host and sidecar then share the
    /// files.
    async fn text_before(&self, request: &Request) -> Option<String> {
        let Request::WriteArgs(args) = request else {
            return None;
        };
        let path = self.places.of(&args.path);
        if let Some(text) = self.seen.text(&path) {
            return Some(text);
        }
        if self.current.borrow().decisions.of(Tool::Read) != Decision::Local {
            return None;
        }
        let about = tokio::fs::metadata(&path).await.ok()?;
        if !about.is_file() || about.len() > MAX_EDITED {
            return None;
        }
        tokio::fs::read_to_string(&path).await.ok()
    }

    /// Checks the request, looks up what the host's call depends on, then lets the host execute
    /// it. Commands forbidden by the administrator and protected paths are refused.
    async fn check_and_execute(
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
        if let Some(reason) = self.protected(&request).await {
            replies.send(refuse::refusal(request, reason)?).await;
            return Ok(());
        }
        let before = self.text_before(&request).await;
        let work = self.execute_on_host(request, before, replies.clone(), abort);
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        work.done.await
    }

    /// Returns why a request is refused even though the host could execute it: it would change a
    /// protected path or access credentials.
    async fn protected(&self, request: &Request) -> Option<String> {
        let (path, changes) = touched(request)?;
        // The host ignores an `@` before a path.
        let paths = [path, path.strip_prefix('@').unwrap_or(path)].map(|path| self.places.of(path));
        let guard = Arc::clone(&self.guard);
        let check = move || {
            paths.iter().find_map(|path| {
                let verdict = if changes {
                    guard.host_change(path)
                } else {
                    guard.host_read(path)
                };
                verdict.err().map(|refusal| refusal.to_string())
            })
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|_| Some("the path could not be judged".into()))
    }

    async fn refuse_loss(request: Request, replies: Replies) -> Result<(), super::Thrown> {
        let reason = "the host's read tool showed only a part of this file; writing it whole \
                      would lose the rest: change it with a command or an edit of the host";
        replies.send(refuse::refusal(request, reason.into())?).await;
        Ok(())
    }
}

/// Returns the path that a request names, and whether the request changes it.
fn touched(request: &Request) -> Option<(&str, bool)> {
    Some(match request {
        Request::WriteArgs(args) => (&args.path, true),
        Request::PiWriteArgs(args) => (&args.path, true),
        Request::PiEditArgs(args) => (&args.path, true),
        Request::DeleteArgs(args) => (&args.path, true),
        Request::ReadArgs(args) => (&args.path, false),
        Request::PiReadArgs(args) => (&args.path, false),
        Request::LsArgs(args) => (&args.path, false),
        Request::PiLsArgs(args) => (args.path.as_deref()?, false),
        Request::GrepArgs(args) => (args.path.as_deref()?, false),
        Request::PiGrepArgs(args) => (args.path.as_deref()?, false),
        Request::PiFindArgs(args) => (args.path.as_deref()?, false),
        _ => return None,
    })
}

impl Executor for ByHost {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        if self.would_lose_content(&request) {
            return Work {
                done: Box::pin(Self::refuse_loss(request, replies)),
                call: None,
            };
        }
        let in_doubt = forbidden::command(&request).is_some_and(forbidden::is_in_doubt);
        if in_doubt || touched(&request).is_some() {
            return Work {
                done: Box::pin(self.check_and_execute(request, replies, abort)),
                call: None,
            };
        }
        self.execute_on_host(request, None, replies, abort)
    }
}

impl ByHost {
    /// Lets the host execute a request.
    fn execute_on_host(
        self: Arc<Self>,
        request: Request,
        before: Option<String>,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let current = Arc::clone(&self.current.borrow());
        let around = Around {
            tools: &current.host,
            workspace: &self.places.workspace,
            absolute: &|path| self.places.of(path),
            before: before.as_deref(),
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
