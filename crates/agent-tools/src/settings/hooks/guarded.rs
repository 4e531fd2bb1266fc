//! An executor that runs hooks before another executor executes a request.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::Event;
use super::subject::{self, Question};
use super::{Occasion, Verdict};
use crate::settings::Settings;
use crate::{Asking, Executor, Replies, Reply, Request, Said, Thrown, Work, refuse};
use cursor_proto::agent::v1::*;
use cursor_proto::value;

/// Runs hooks before the inner executor.
pub struct Guarded {
    inner: Arc<dyn Executor>,
    settings: Arc<Settings>,
    occasion: Occasion,
}

impl Guarded {
    /// Returns `inner` itself if there are no hooks, else an executor that runs them first.
    pub fn around(
        inner: Arc<dyn Executor>,
        settings: &Arc<Settings>,
        occasion: Occasion,
    ) -> Arc<dyn Executor> {
        if settings.hooks.is_empty() {
            return inner;
        }
        Arc::new(Self {
            inner,
            settings: Arc::clone(settings),
            occasion,
        })
    }

    /// Whether no hook applies to a request.
    fn is_free(&self, request: &Request) -> bool {
        let hooks = &self.settings.hooks;
        let asked = |question: &Question| hooks.has(question.event, &question.subject);
        let wanted = matches!(request, Request::ExecuteHookArgs(_))
            || self.is_filtered(request)
            || self.questions(request).iter().any(asked);
        !wanted
    }

    fn questions(&self, request: &Request) -> Vec<Question> {
        subject::questions(request, &self.settings.servers, &self.occasion)
    }

    /// Whether a hook checks the content in the result of a request.
    fn is_filtered(&self, request: &Request) -> bool {
        let hooks = &self.settings.hooks;
        subject::returns_content(request) && hooks.has(Event::BeforeReadFile, subject::READ)
    }

    async fn run(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Result<(), Thrown> {
        if let Request::ExecuteHookArgs(args) = request {
            replies.send(self.on_request(args).await).await;
            return Ok(());
        }
        // Input of one shell is checked in the order in which it is sent.
        let _input = match &request {
            Request::WriteShellStdinArgs(_) => Some(self.occasion.bench.take_input().await),
            _ => None,
        };
        for question in self.questions(&request) {
            if let Verdict::Deny(why) = self.ask(question, &abort).await {
                replies.send(refused(request, &why)?).await;
                return Ok(());
            }
        }
        if self.is_filtered(&request) {
            return self.execute_filtered(request, replies, abort).await;
        }
        let work = Arc::clone(&self.inner).execute(request, replies.clone(), abort);
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        work.done.await
    }

    /// Asks the hooks a question, and the same one about the path that its links lead to.
    pub(super) async fn ask(&self, question: Question, abort: &CancellationToken) -> Verdict {
        let hooks = &self.settings.hooks;
        if !hooks.has(question.event, &question.subject) {
            return Verdict::Allow;
        }
        let asking = async {
            let behind = tokio::task::spawn_blocking(move || (question.behind_links(), question));
            let Ok((behind, question)) = behind.await else {
                return Verdict::Deny("where its path leads cannot be determined".into());
            };
            for question in std::iter::once(question).chain(behind) {
                let (event, about) = (question.event, question.about);
                let asked = hooks.ask(event, &question.subject, about, &self.occasion);
                if let Verdict::Deny(why) = asked.await {
                    return Verdict::Deny(why);
                }
            }
            Verdict::Allow
        };
        tokio::select! {
            verdict = asking => verdict,
            () = abort.cancelled() => Verdict::Deny("the request was cancelled".into()),
        }
    }

    /// The context that hooks are run in.
    pub(super) fn occasion(&self) -> &Occasion {
        &self.occasion
    }

    /// Executes a request, and asks the hooks about the content in its result before returning it.
    async fn execute_filtered(
        &self,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Result<(), Thrown> {
        let (queue, mut said) = mpsc::channel(4);
        let own = Replies::new(0, queue);
        let work = Arc::clone(&self.inner).execute(request.clone(), own, abort.clone());
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        let mut done = work.done;
        let mut held = Vec::new();
        let result = loop {
            tokio::select! {
                biased;
                Some((_, said)) = said.recv() => match said {
                    Said::Reply(reply) => held.push(*reply),
                    Said::Call(call) => replies.call(call).await,
                },
                result = &mut done => break result,
            }
        };
        drop(done);
        while let Ok((_, said)) = said.try_recv() {
            if let Said::Reply(reply) = said {
                held.push(*reply);
            }
        }
        for reply in held {
            let reply = self.filter(&request, reply, &abort).await?;
            replies.send(reply).await;
        }
        result
    }

    /// Runs hooks at the request of the server, which asks before it executes its own tools.
    async fn on_request(&self, args: ExecuteHookArgs) -> Reply {
        let asked = args.request.and_then(|request| request.request);
        let response = match asked {
            Some(execute_hook_request::Request::PreToolUse(query)) => {
                let input = value::decode_struct(&query.tool_input.unwrap_or_default());
                let about = serde_json::json!({
                    "tool_name": query.tool_name, "tool_input": input.unwrap_or_default(),
                    "tool_use_id": query.tool_use_id, "cwd": query.cwd,
                });
                let about = about.as_object().cloned().unwrap_or_default();
                let hooks = &self.settings.hooks;
                let verdict = hooks.ask(Event::PreToolUse, &query.tool_name, about, &self.occasion);
                let (permission, user_message) = match verdict.await {
                    Verdict::Allow => ("allow", None),
                    Verdict::Deny(why) => ("deny", Some(why)),
                };
                Some(execute_hook_response::Response::PreToolUse(
                    PreToolUseRequestResponse {
                        permission: Some(permission.into()),
                        user_message,
                        ..PreToolUseRequestResponse::default()
                    },
                ))
            }
            None => None,
        };
        Reply::ExecuteHookResult(ExecuteHookResult {
            response: response.map(|response| ExecuteHookResponse {
                response: Some(response),
            }),
        })
    }
}

impl Executor for Guarded {
    fn execute(
        self: Arc<Self>,
        request: Request,
        replies: Replies,
        abort: CancellationToken,
    ) -> Work {
        if self.is_free(&request) {
            return Arc::clone(&self.inner).execute(request, replies, abort);
        }
        Work {
            done: Box::pin(self.run(request, replies, abort)),
            call: None,
        }
    }

    fn ask(&self, question: &AskQuestionArgs) -> Option<Asking> {
        self.inner.ask(question)
    }
}

/// Returns the typed result for a request that a hook denied.
pub(super) fn refused(request: Request, why: &str) -> Result<Reply, Thrown> {
    let reason = format!(
        "{} was blocked by a hook: {why}\n\nDo not look for another way to do the same.",
        subject::what(&request)
    );
    tracing::info!("a hook kept a tool from running");
    if let Request::McpArgs(_) = request {
        return Ok(Reply::McpResult(McpResult {
            result: Some(mcp_result::Result::PermissionDenied(McpPermissionDenied {
                error: reason,
                is_readonly: false,
            })),
        }));
    }
    // A request without a typed refusal fails with the reason.
    refuse::refusal(request, reason.clone()).map_err(|_| Thrown(reason))
}
