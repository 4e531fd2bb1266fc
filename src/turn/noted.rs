//! An executor that has everything written down before another one does it.

use std::sync::Arc;

use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::conversation::begun::Begun;
use crate::run::What;
use crate::tools::{Asking, Executor, Replies, Request, Thrown, Work};
use crate::wire::proto::agent::v1::AskQuestionArgs;

/// Writes down what is done here, not what the host does: that is in its history.
pub(super) struct Noted {
    inner: Arc<dyn Executor>,
    begun: Arc<Begun>,
}

impl Noted {
    /// The executor itself where nothing is kept.
    pub(super) fn around(inner: Arc<dyn Executor>, begun: Option<Arc<Begun>>) -> Arc<dyn Executor> {
        match begun {
            Some(begun) => Arc::new(Self { inner, begun }),
            None => inner,
        }
    }
}

impl Executor for Noted {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        let what = What::of(&request);
        let work = Arc::clone(&self.inner).execute(request, replies, abort);
        let (Some(what), None) = (what, &work.call) else {
            return work;
        };
        let done = async move {
            let begun = Arc::clone(&self.begun);
            let noted = tokio::task::spawn_blocking(move || begun.add(&what.to_string()));
            match noted.await {
                Ok(Ok(())) => work.done.await,
                // A disk that fails is no reason to do nothing.
                Ok(Err(error)) => {
                    tracing::debug!(%error, "not written down before it was begun");
                    work.done.await
                }
                Err(error) => Err(unwritten(&error)),
            }
        };
        Work {
            done: Box::pin(done),
            call: None,
        }
    }

    fn ask(&self, question: &AskQuestionArgs) -> Option<Asking> {
        self.inner.ask(question)
    }
}

/// What could not even be tried to be written down is not done.
fn unwritten(error: &JoinError) -> Thrown {
    let why = match error.is_panic() {
        true => "cursor-sidecar failed inside",
        false => "cursor-sidecar is ending",
    };
    Thrown(format!("{why}; this was not begun"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::conversation::fingerprint::Fingerprint;
    use crate::conversation::store::Store;
    use crate::wire::proto::agent::v1::ShellArgs;

    #[derive(Default)]
    struct Doer(AtomicBool);

    impl Executor for Doer {
        fn execute(self: Arc<Self>, _: Request, _: Replies, _: CancellationToken) -> Work {
            let done = async move {
                self.0.store(true, Ordering::Relaxed);
                Ok(())
            };
            Work {
                done: Box::pin(done),
                call: None,
            }
        }
    }

    /// A command that came while the process was leaving ran, and the next sidecar did not know.
    #[test]
    fn what_can_no_more_be_written_down_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Store::at(folder.path()).take("s").unwrap();
        let begun = Arc::new(kept.begins(Fingerprint::of("S", &[])));
        let doer = Arc::new(Doer::default());
        let noted = Noted::around(Arc::clone(&doer) as _, Some(begun));
        let request = Request::ShellArgs(ShellArgs::default());
        let replies = Replies::new(1, mpsc::channel(1).0);
        let work = noted.execute(request, replies, CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _inside = handle.enter();
        let end = work.done.now_or_never().unwrap();
        assert!(end.is_err(), "{end:?}");
        assert!(!doer.0.load(Ordering::Relaxed));
        assert!(end.unwrap_err().0.contains("is ending"));
    }

    #[tokio::test]
    async fn a_failure_of_ours_is_not_told_as_the_end() {
        let failed = tokio::spawn(async { panic!("inside") }).await;
        let told = unwritten(&failed.unwrap_err()).0;
        assert_eq!(told, "cursor-sidecar failed inside; this was not begun");
    }
}
