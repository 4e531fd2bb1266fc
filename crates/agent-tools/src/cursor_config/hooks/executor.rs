//! An executor that runs hooks before another executor executes a request.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::config::HookEvent;
use super::hook_input::{self, HookInput};
use super::{HookContext, HookDecision};
use crate::cursor_config::CursorConfig;
use crate::prompts::{refusals, tools};
use crate::{
    ExecError, ExecOutput, ExecReply, ExecRequest, ExecTask, Executor, PendingQuestion,
    ReplySender, rejection,
};
use cursor_proto::agent::v1::*;
use cursor_proto::protobuf_value;

/// Runs hooks before the inner executor.
pub struct HookedExecutor {
    inner: Arc<dyn Executor>,
    settings: Arc<CursorConfig>,
    context: HookContext,
}

impl HookedExecutor {
    /// Returns `inner` itself if there are no hooks, else an executor that runs them first.
    pub fn around(
        inner: Arc<dyn Executor>,
        settings: &Arc<CursorConfig>,
        context: HookContext,
    ) -> Arc<dyn Executor> {
        if settings.hooks.is_empty() {
            return inner;
        }
        Arc::new(Self {
            inner,
            settings: Arc::clone(settings),
            context,
        })
    }

    /// Whether no hook applies to a request.
    fn is_free(&self, request: &ExecRequest) -> bool {
        let hooks = &self.settings.hooks;
        let asked = |question: &HookInput| hooks.has(question.event, &question.subject);
        let wanted = matches!(request, ExecRequest::ExecuteHookArgs(_))
            || self.is_filtered(request)
            || self.questions(request).iter().any(asked);
        !wanted
    }

    fn questions(&self, request: &ExecRequest) -> Vec<HookInput> {
        hook_input::questions(request, &self.settings.servers, &self.context)
    }

    /// Whether a hook checks the content in the result of a request.
    fn is_filtered(&self, request: &ExecRequest) -> bool {
        let hooks = &self.settings.hooks;
        hook_input::returns_content(request)
            && hooks.has(HookEvent::BeforeReadFile, hook_input::READ)
    }

    async fn run(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> Result<(), ExecError> {
        if let ExecRequest::ExecuteHookArgs(args) = request {
            replies.send(self.on_request(args).await).await;
            return Ok(());
        }
        // Input of one shell is checked in the order in which it is sent.
        let _input = match &request {
            ExecRequest::WriteShellStdinArgs(_) => {
                Some(self.context.shell_session.take_input().await)
            }
            _ => None,
        };
        for question in self.questions(&request) {
            if let HookDecision::Deny(why) = self.ask(question, &abort).await {
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
    pub(super) async fn ask(&self, question: HookInput, abort: &CancellationToken) -> HookDecision {
        let hooks = &self.settings.hooks;
        if !hooks.has(question.event, &question.subject) {
            return HookDecision::Allow;
        }
        let asking = async {
            let resolved = tokio::task::spawn_blocking(move || (question.resolved(), question));
            let Ok((resolved, question)) = resolved.await else {
                return HookDecision::Deny(refusals::PATH_UNRESOLVED.into());
            };
            for question in std::iter::once(question).chain(resolved) {
                let (event, about) = (question.event, question.about);
                let asked = hooks.ask(event, &question.subject, about, &self.context);
                if let HookDecision::Deny(why) = asked.await {
                    return HookDecision::Deny(why);
                }
            }
            HookDecision::Allow
        };
        tokio::select! {
            verdict = asking => verdict,
            () = abort.cancelled() => HookDecision::Deny(tools::REQUEST_CANCELLED.into()),
        }
    }

    /// The context that hooks are run in.
    pub(super) fn context(&self) -> &HookContext {
        &self.context
    }

    /// Executes a request, and asks the hooks about the content in its result before returning it.
    async fn execute_filtered(
        &self,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> Result<(), ExecError> {
        let (queue, mut output) = mpsc::channel(4);
        let own = ReplySender::new(0, queue);
        let work = Arc::clone(&self.inner).execute(request.clone(), own, abort.clone());
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        let mut done = work.done;
        let mut held = Vec::new();
        let result = loop {
            tokio::select! {
                biased;
                Some((_, output)) = output.recv() => match output {
                    ExecOutput::Reply(reply) => held.push(*reply),
                    ExecOutput::Call(call) => replies.call(call).await,
                },
                result = &mut done => break result,
            }
        };
        drop(done);
        while let Ok((_, output)) = output.try_recv() {
            if let ExecOutput::Reply(reply) = output {
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
    async fn on_request(&self, args: ExecuteHookArgs) -> ExecReply {
        let asked = args.request.and_then(|request| request.request);
        let response = match asked {
            Some(execute_hook_request::Request::PreToolUse(query)) => {
                let input = protobuf_value::decode_struct(&query.tool_input.unwrap_or_default());
                let about = serde_json::json!({
                    "tool_name": query.tool_name, "tool_input": input.unwrap_or_default(),
                    "tool_use_id": query.tool_use_id, "cwd": query.cwd,
                });
                let about = about.as_object().cloned().unwrap_or_default();
                let hooks = &self.settings.hooks;
                let verdict = hooks.ask(
                    HookEvent::PreToolUse,
                    &query.tool_name,
                    about,
                    &self.context,
                );
                let (permission, user_message) = match verdict.await {
                    HookDecision::Allow => ("allow", None),
                    HookDecision::Deny(why) => ("deny", Some(why)),
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
        ExecReply::ExecuteHookResult(ExecuteHookResult {
            response: response.map(|response| ExecuteHookResponse {
                response: Some(response),
            }),
        })
    }
}

impl Executor for HookedExecutor {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        if self.is_free(&request) {
            return Arc::clone(&self.inner).execute(request, replies, abort);
        }
        ExecTask {
            done: Box::pin(self.run(request, replies, abort)),
            call: None,
        }
    }

    fn ask(&self, question: &AskQuestionArgs) -> Option<PendingQuestion> {
        self.inner.ask(question)
    }
}

/// Returns the typed result for a request that a hook denied.
pub(super) fn refused(request: ExecRequest, why: &str) -> Result<ExecReply, ExecError> {
    let reason = refusals::blocked_by_hook(hook_input::what(&request), why);
    tracing::info!("a hook kept a tool from running");
    if let ExecRequest::McpArgs(_) = request {
        return Ok(ExecReply::McpResult(McpResult {
            result: Some(mcp_result::Result::PermissionDenied(McpPermissionDenied {
                error: reason,
                is_readonly: false,
            })),
        }));
    }
    // A request without a typed refusal fails with the reason.
    rejection::refusal(request, reason.clone()).map_err(|_| ExecError(reason))
}
