//! An executor that logs each effect before another executor performs it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::effect_log::{EffectDigest, EffectLogFile, FileEntry};
use agent_tools::{ExecError, ExecRequest, ExecTask, Executor, PendingQuestion, ReplySender};
use cursor_proto::agent::v1::AskQuestionArgs;

/// Logs what is executed within a turn: by us, or by a host that executes inline. What a host
/// executes between turns is in its history.
pub(super) struct IntentLogger {
    inner: Arc<dyn Executor>,
    /// The file of the effect log, if the conversation is stored.
    file: Option<Arc<EffectLogFile>>,
    /// Whether calls of host tools are logged, because no history contains them.
    logs_host_calls: bool,
    /// Resolves when the previous call was passed to the host, because calls keep their order.
    last: Mutex<Option<oneshot::Receiver<()>>>,
}

impl IntentLogger {
    /// Returns `inner` itself if there is nothing to log.
    pub(super) fn around(
        inner: Arc<dyn Executor>,
        file: Option<Arc<EffectLogFile>>,
        logs_host_calls: bool,
    ) -> Arc<dyn Executor> {
        if file.is_none() && !logs_host_calls {
            return inner;
        }
        Arc::new(Self {
            inner,
            file,
            logs_host_calls,
            last: Mutex::default(),
        })
    }

    /// Logs an effect that is about to be executed.
    async fn note(&self, digest: EffectDigest) -> Result<(), ExecError> {
        let Some(file) = self.file.clone() else {
            return Ok(());
        };
        let noted = tokio::task::spawn_blocking(move || file.append(FileEntry::Executing(digest)));
        match noted.await {
            Ok(Ok(())) => Ok(()),
            // Execute it even if the disk fails.
            Ok(Err(error)) => {
                tracing::debug!(%error, "an effect could not be logged before its execution");
                Ok(())
            }
            Err(error) => Err(not_logged(&error)),
        }
    }

    /// Returns a receiver that resolves when the previous call was passed on, and the sender for
    /// this one.
    fn queue(&self) -> (Option<oneshot::Receiver<()>>, oneshot::Sender<()>) {
        let (gone, next) = oneshot::channel();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        (last.replace(next), gone)
    }
}

impl Executor for IntentLogger {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let what = EffectDigest::of(&request);
        let work = Arc::clone(&self.inner).execute(request, replies.clone(), abort);
        let Some(what) = what.filter(|_| work.call.is_none() || self.logs_host_calls) else {
            return work;
        };
        let ExecTask { done, call } = work;
        let call = call.map(|call| (call, self.queue()));
        let done = async move {
            self.note(what).await?;
            if let Some((call, (before, gone))) = call {
                if let Some(before) = before {
                    // A dropped sender means the previous call was never passed on; do not wait for
                    // it.
                    let _ = before.await;
                }
                replies.call(call).await;
                drop(gone);
            }
            done.await
        };
        ExecTask {
            done: Box::pin(done),
            call: None,
        }
    }

    fn ask(&self, question: &AskQuestionArgs) -> Option<PendingQuestion> {
        self.inner.ask(question)
    }
}

/// The error for an effect whose log entry could not be written at all: it is not executed.
fn not_logged(error: &JoinError) -> ExecError {
    let why = if error.is_panic() {
        "cursor-sidecar failed inside"
    } else {
        "cursor-sidecar is ending"
    };
    ExecError(format!("{why}; this was not begun"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::conversation::fingerprint::Fingerprint;
    use crate::conversation::store::Store;
    use cursor_proto::agent::v1::ShellArgs;

    #[derive(Default)]
    struct Doer(AtomicBool);

    impl Executor for Doer {
        fn execute(
            self: Arc<Self>,
            _: ExecRequest,
            _: ReplySender,
            _: CancellationToken,
        ) -> ExecTask {
            let done = async move {
                self.0.store(true, Ordering::Relaxed);
                Ok(())
            };
            ExecTask {
                done: Box::pin(done),
                call: None,
            }
        }
    }

    /// Regression: a command that arrived during shutdown ran, and the next sidecar had no record
    /// of it.
    #[test]
    fn an_effect_that_cannot_be_logged_is_not_executed() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Store::at(folder.path()).lock("s").unwrap();
        let file = Arc::new(kept.new_log_file(Fingerprint::of("S", &[])));
        let doer = Arc::new(Doer::default());
        let noted = IntentLogger::around(Arc::clone(&doer) as _, Some(file), false);
        let request = ExecRequest::ShellArgs(ShellArgs::default());
        let replies = ReplySender::new(1, mpsc::channel(1).0);
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
    async fn a_panic_is_not_reported_as_a_shutdown() {
        let failed = tokio::spawn(async { panic!("inside") }).await;
        let message = not_logged(&failed.unwrap_err()).0;
        assert_eq!(message, "cursor-sidecar failed inside; this was not begun");
    }
}
