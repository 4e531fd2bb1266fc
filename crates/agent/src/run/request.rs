//! The run request: the first message of an attempt.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::retry::RetriesUsed;
use crate::effect_log::EffectLog;
use agent_tools::tool_definition::ToolDefinition;
use cursor_client::headers::BlobKey;
use cursor_proto::agent::v1::{
    self as proto, AgentClientMessage, AgentRunRequest, ConversationAction, McpTools,
    RequestedModel, SelectedContext, SelectedImage, UserMessageAction, agent_client_message,
    conversation_action, requested_model, selected_image,
};
use cursor_proto::raw_fields::FieldError;
use cursor_proto::state::without_usage_tree;
use cursor_proto::tool_gates::ToolGates;

/// Everything that defines a run.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// The same for all turns of a conversation.
    pub conversation_id: String,
    /// The conversation's last checkpoint.
    pub state: Option<Bytes>,
    /// What to do.
    pub action: Action,
    /// Which model.
    pub model: Model,
    /// The host's tools, as offered to the model.
    pub offers: Vec<ToolDefinition>,
    /// The conversation's blob key.
    pub blob_key: BlobKey,
    /// Which of Cursor's own tools are enabled.
    pub gates: ToolGates,
    /// Text the user has seen since that checkpoint; if the model repeats it, it is not shown
    /// again.
    pub shown: String,
    /// Retries that an earlier run of the same turn has used.
    pub spent: RetriesUsed,
    /// How long to wait before the first attempt.
    pub delay: Duration,
    /// Effects executed for an earlier run; if the server requests them again, they are replayed.
    pub effects: EffectLog,
}

/// What a run does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Answers a message.
    UserMessage(UserMessage),
    /// Continues from a checkpoint.
    Resume,
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserMessage {
    /// Its text.
    pub text: String,
    /// Its images.
    pub images: Vec<Image>,
    /// Agent or plan; the server's default if absent.
    pub mode: Option<Mode>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its MIME type, where known.
    pub mime_type: Option<String>,
    /// Its bytes.
    pub data: Bytes,
}

/// How the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mode {
    Agent,
    Plan,
}

/// A model and the values chosen for its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// The catalogue's id.
    pub id: String,
    /// Parameter ids and values.
    pub parameters: Vec<(String, String)>,
    /// Whether to use Max Mode.
    pub max_mode: bool,
}

impl RunSpec {
    /// Returns the run request of an attempt. `run_id` is the id of the first attempt.
    pub fn request(&self, run_id: Uuid) -> Result<AgentClientMessage, FieldError> {
        let state = match &self.state {
            Some(state) => without_usage_tree(state)?,
            // A new conversation is sent as an empty state.
            None => Bytes::new(),
        };
        let request = AgentRunRequest {
            conversation_state: Some(state),
            action: Some(ConversationAction {
                action: Some(self.action.proto()),
                ..ConversationAction::default()
            }),
            mcp_tools: Some(McpTools {
                mcp_tools: self.offers.iter().map(ToolDefinition::definition).collect(),
            }),
            conversation_id: Some(self.conversation_id.clone()),
            requested_model: Some(self.model.proto()),
            run_id: Some(run_id.to_string()),
            ..AgentRunRequest::default()
        };
        Ok(AgentClientMessage {
            message: Some(agent_client_message::Message::RunRequest(request)),
        })
    }
}

impl Action {
    fn proto(&self) -> conversation_action::Action {
        match self {
            Self::UserMessage(message) => {
                conversation_action::Action::UserMessageAction(UserMessageAction {
                    user_message: Some(message.proto()),
                    ..UserMessageAction::default()
                })
            }
            Self::Resume => {
                conversation_action::Action::ResumeAction(proto::ResumeAction::default())
            }
        }
    }
}

impl UserMessage {
    pub(super) fn proto(&self) -> proto::UserMessage {
        let images: Vec<SelectedImage> = self.images.iter().map(Image::proto).collect();
        proto::UserMessage {
            text: self.text.clone(),
            selected_context: (!images.is_empty()).then(|| SelectedContext {
                selected_images: images,
                ..SelectedContext::default()
            }),
            mode: match self.mode {
                None => proto::AgentMode::Unspecified,
                Some(Mode::Agent) => proto::AgentMode::Agent,
                Some(Mode::Plan) => proto::AgentMode::Plan,
            } as i32,
            ..proto::UserMessage::default()
        }
    }
}

impl Image {
    fn proto(&self) -> SelectedImage {
        SelectedImage {
            uuid: Uuid::new_v4().to_string(),
            mime_type: self.mime_type.clone().unwrap_or_default(),
            data_or_blob_id: Some(selected_image::DataOrBlobId::Data(self.data.clone())),
            ..SelectedImage::default()
        }
    }
}

impl Model {
    fn proto(&self) -> RequestedModel {
        RequestedModel {
            model_id: self.id.clone(),
            parameters: self
                .parameters
                .iter()
                .map(|(id, value)| requested_model::ModelParameterValue {
                    id: id.clone(),
                    value: value.clone(),
                })
                .collect(),
            max_mode: self.max_mode,
            ..RequestedModel::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_proto::field_order;

    /// The first message of the official client, as recorded.
    const RECORDED: &str = "0a760a00120f0a0d0a0b0a0940746f6f6c7320676f22002a2a6167656e742d30326563306465342d346134612d343665372d626363372d6630653165306234326136374a0c0a0a636f6d706f7365722d32ca012461353735623936362d383662622d346165392d383732642d396564343634653036303333";

    #[test]
    fn the_first_request_equals_the_official_clients_byte_for_byte() {
        let spec = RunSpec {
            conversation_id: "agent-02ec0de4-4a4a-46e7-bcc7-f0e1e0b42a67".into(),
            state: None,
            action: Action::UserMessage(UserMessage {
                text: "@tools go".into(),
                ..UserMessage::default()
            }),
            model: Model {
                id: "composer-2".into(),
                ..Model::default()
            },
            offers: Vec::new(),
            blob_key: BlobKey::random().unwrap(),
            gates: ToolGates::default(),
            shown: String::new(),
            spent: RetriesUsed::default(),
            delay: Duration::ZERO,
            effects: EffectLog::default(),
        };
        let run_id = "a575b966-86bb-4ae9-872d-9ed464e06033".parse().unwrap();
        let bytes = field_order::client(&spec.request(run_id).unwrap());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, RECORDED);
    }
}
