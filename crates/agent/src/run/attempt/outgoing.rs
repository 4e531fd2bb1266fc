//! Outgoing messages: answers to interaction queries, and conversation actions.

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::super::event::RunEvent;
use super::super::query_replies;
use super::super::run_task::Injection;
use super::Attempt;
use crate::effect_log::RequestKey;
use cursor_proto::agent::v1::*;
use foundation::VariantName;

/// Questions that may be with the user at once; more get the fixed answer.
const MAX_QUESTIONS: usize = 64;

impl Attempt<'_> {
    /// Answers a query. Questions go to the user if the host can ask; everything else has a fixed
    /// answer.
    pub(super) fn query(&mut self, query: InteractionQuery) {
        use interaction_query::Query;
        let kind = query
            .query
            .as_ref()
            .map(|kind| VariantName(kind).to_string());
        tracing::debug!(query = query.id, kind, "query.asked");
        if self.cancel_deadline.is_some() {
            let reply = query_replies::declined(query, self.context.drift);
            return self.respond(reply);
        }
        if let Some(Query::AskQuestionInteractionQuery(question)) = &query.query
            && self.questions.len() < MAX_QUESTIONS
            && let Some(args) = &question.args
            && let Some(question_call) = self.context.executor.ask(args)
        {
            let id = query.id;
            self.questions
                .spawn(question_call.answer.map(move |result| (id, result)));
            let (call, host_call) = (&question.tool_call_id, &question_call.call.id);
            self.context.effects.ask_user(id, call, host_call);
            self.emit(RunEvent::HostCall(Box::new(question_call.call)));
            return;
        }
        let reply = query_replies::question(query, self.context.drift);
        self.respond(reply);
    }

    /// Sends the user's answer to a question.
    pub(super) fn answered(&mut self, id: u32, result: AskQuestionResult) {
        use interaction_response::Result as Answer;
        let answer = AskQuestionInteractionResponse {
            result: Some(result),
        };
        self.respond(InteractionResponse {
            id,
            result: Some(Answer::AskQuestionInteractionResponse(answer)),
        });
        self.context.effects.end(RequestKey::Question(id), &Ok(()));
        // The user may take any time to answer, so silence is measured from now.
        let now = Instant::now();
        self.last_inbound = now;
        self.watchdog.resumed(now);
    }

    fn respond(&mut self, response: InteractionResponse) {
        self.post(&AgentClientMessage {
            message: Some(agent_client_message::Message::InteractionResponse(response)),
        });
    }

    /// Sends a user message to the running run, once per stream, as soon as the server has accepted
    /// the stream.
    pub(super) fn inject(&mut self, injection: Injection) {
        if !self.accepted {
            return self.context.held.push(injection);
        }
        if self.injected.iter().any(|sent| sent.id == injection.id) {
            return;
        }
        tracing::debug!(injection = %injection.id, bytes = injection.message.text.len(), images = injection.message.images.len(), "run.inject");
        let action = InjectContextAction {
            injection_id: injection.id.to_string(),
            expected_run_id: self.context.run_id.to_string(),
            payload: Some(inject_context_action::Payload::UserContext(
                UserContextInjection {
                    user_message: Some(cursor_proto::agent::v1::UserMessage {
                        // A checkpoint that includes the message names it.
                        message_id: injection.id.to_string(),
                        ..injection.message.proto()
                    }),
                    request_context: None,
                },
            )),
        };
        self.act(conversation_action::Action::InjectContextAction(action));
        self.injected.push(injection);
    }

    pub(super) fn act(&mut self, action: conversation_action::Action) {
        self.post(&AgentClientMessage {
            message: Some(agent_client_message::Message::ConversationAction(
                ConversationAction {
                    action: Some(action),
                    ..ConversationAction::default()
                },
            )),
        });
    }
}
