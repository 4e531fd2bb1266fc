//! An executor that asks hooks before another one executes.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::Event;
use super::{Occasion, Verdict, subject};
use crate::tools::settings::Settings;
use crate::tools::{Asking, Executor, Replies, Reply, Request, Said, Thrown, Work, refuse};
use crate::wire::proto::agent::v1::*;
use crate::wire::value;

/// Asks hooks first.
pub struct Guarded {
    inner: Arc<dyn Executor>,
    settings: Arc<Settings>,
    occasion: Occasion,
}

impl Guarded {
    /// The executor itself where there are no hooks, else one that asks them.
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

    /// Whether no hook wants to know of a request.
    fn is_free(&self, request: &Request) -> bool {
        let hooks = &self.settings.hooks;
        let asked = |question: &subject::Question| hooks.has(question.event, &question.subject);
        let reads = subject::read_path(request).is_some();
        let wanted = matches!(request, Request::ExecuteHookArgs(_))
            || reads && hooks.has(Event::BeforeReadFile, "Read")
            || subject::questions(request, &self.settings.servers)
                .iter()
                .any(asked);
        !wanted
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
        for question in subject::questions(&request, &self.settings.servers) {
            if let Verdict::Deny(why) = self.ask(question, &abort).await {
                replies.send(refused(request, &why)?).await;
                return Ok(());
            }
        }
        let hooks = &self.settings.hooks;
        let reads = subject::read_path(&request).is_some();
        if reads && hooks.has(Event::BeforeReadFile, "Read") {
            return self.read(request, replies, abort).await;
        }
        let work = Arc::clone(&self.inner).execute(request, replies.clone(), abort);
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        work.done.await
    }

    async fn ask(&self, question: subject::Question, abort: &CancellationToken) -> Verdict {
        let hooks = &self.settings.hooks;
        let (event, about) = (question.event, question.about);
        tokio::select! {
            verdict = hooks.ask(event, &question.subject, about, &self.occasion) => verdict,
            () = abort.cancelled() => Verdict::Deny("the request was cancelled".into()),
        }
    }

    /// Reads, and shows the hook what was read before anybody else sees it.
    async fn read(
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
            let question = content(&reply).and_then(|text| subject::before_read(&request, &text));
            let reply = match question {
                None => reply,
                Some(question) => match self.ask(question, &abort).await {
                    Verdict::Allow => reply,
                    Verdict::Deny(why) => refused(request.clone(), &why)?,
                },
            };
            replies.send(reply).await;
        }
        result
    }

    /// The server asks for hooks itself before tools of its own.
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

/// The typed answer that says a hook said no.
fn refused(request: Request, why: &str) -> Result<Reply, Thrown> {
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
    // Where there is no typed answer the reason is what is thrown.
    refuse::refusal(request, reason.clone()).map_err(|_| Thrown(reason))
}

/// What a reply tells of a file; `None` if nothing.
fn content(reply: &Reply) -> Option<String> {
    match reply {
        Reply::ReadResult(ReadResult {
            result: Some(read_result::Result::Success(read)),
        }) => Some(match &read.output {
            Some(read_success::Output::Content(text)) => text.clone(),
            _ => String::new(),
        }),
        Reply::PiReadResult(PiReadExecResult {
            result: Some(pi_read_exec_result::Result::Success(read)),
        }) => Some(read.output.clone()),
        _ => None,
    }
}
