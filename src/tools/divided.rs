//! Each of Cursor's own tools goes to whoever the user's settings say: this process, the host,
//! or nobody.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::native::policy::{Mode, Policy, Tool};
use super::refuse::{Refuse, Why};
use super::{Executor, Replies, Request, Work};

/// Routes requests by tool.
pub(super) struct Divided {
    pub(super) policy: Policy,
    /// This process.
    pub(super) local: Arc<dyn Executor>,
    /// The host, where there is one.
    pub(super) host: Option<Arc<dyn Executor>>,
    /// Answers what is about no tool, and says no to the rest.
    pub(super) refuse: Arc<Refuse>,
}

impl Divided {
    fn executor(&self, request: &Request) -> Arc<dyn Executor> {
        let Some(tool) = Tool::of(request) else {
            return self.refuse.clone();
        };
        match (self.policy.of(tool), &self.host) {
            (Mode::Local, _) => Arc::clone(&self.local),
            (Mode::Host, Some(host)) => Arc::clone(host),
            (Mode::Host, None) => self.no(Why::Host),
            (Mode::Off, _) if self.policy.mode == Mode::Off => self.no(Why::Off),
            (Mode::Off, _) => self.no(Why::Denied),
        }
    }

    fn no(&self, why: Why) -> Arc<dyn Executor> {
        let facts = self.refuse.facts.clone();
        Arc::new(Refuse { facts, why })
    }
}

impl Executor for Divided {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        self.executor(&request).execute(request, replies, abort)
    }
}
