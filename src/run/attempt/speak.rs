//! What a stream says of its own accord: answers to questions, actions.

use futures_util::FutureExt as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::answer;
use super::super::driver::Injection;
use super::super::event::RunEvent;
use super::super::owed::{Ask, Effect};
use super::super::retry::Shown;
use super::Attempt;
use crate::diag::Variant;
use crate::wire::proto::agent::v1::*;

impl Attempt<'_> {
    /// Questions go to a person if one is there; everything else has a standing answer.
    pub(super) fn query(&mut self, query: InteractionQuery) {
        use interaction_query::Query;
        let kind = query.query.as_ref().map(|kind| Variant(kind).to_string());
        tracing::debug!(query = query.id, kind, "query.asked");
        if self.leaving.is_some() {
            let reply = answer::declined(query, self.around.drift);
            return self.respond(reply);
        }
        if let Some(Query::AskQuestionInteractionQuery(question)) = &query.query
            && let Some(args) = &question.args
            && let Some(asking) = self.around.executor.ask(args)
        {
            let id = query.id;
            self.questions
                .spawn(asking.answer.map(move |result| (id, result)));
            // Asked again by a second stream, the person would have to answer twice.
            let (ask, call) = (Ask::Question(id), &asking.call.id);
            self.around
                .owed
                .ask(ask, Effect::Lasting, &question.tool_call_id, call);
            self.progress.shown = self.progress.shown.max(Shown::Called);
            self.tell(RunEvent::HostCall(Box::new(asking.call)));
            return;
        }
        let reply = answer::question(query, self.around.drift);
        self.respond(reply);
    }

    pub(super) fn answered(&mut self, id: u32, result: AskQuestionResult) {
        use interaction_response::Result as Answer;
        let answer = AskQuestionInteractionResponse {
            result: Some(result),
        };
        self.respond(InteractionResponse {
            id,
            result: Some(Answer::AskQuestionInteractionResponse(answer)),
        });
        self.around.owed.answered(Ask::Question(id));
        // A person thinks in silence: it counts from now.
        let now = Instant::now();
        self.last_inbound = now;
        self.watchdog.resumed(now);
    }

    fn respond(&mut self, response: InteractionResponse) {
        self.post(&AgentClientMessage {
            message: Some(agent_client_message::Message::InteractionResponse(response)),
        });
    }

    pub(super) fn inject(&mut self, injection: &Injection) {
        if !self.injected.insert(injection.id) {
            return; // this stream has it
        }
        tracing::debug!(injection = %injection.id, bytes = injection.message.text.len(), images = injection.message.images.len(), "run.inject");
        let action = InjectContextAction {
            injection_id: injection.id.to_string(),
            expected_run_id: self.around.run_id.to_string(),
            payload: Some(inject_context_action::Payload::UserContext(
                UserContextInjection {
                    user_message: Some(crate::wire::proto::agent::v1::UserMessage {
                        message_id: Uuid::new_v4().to_string(),
                        ..injection.message.proto()
                    }),
                    request_context: None,
                },
            )),
        };
        self.act(conversation_action::Action::InjectContextAction(action));
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
