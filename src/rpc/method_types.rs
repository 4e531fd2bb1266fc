//! The types of all methods, as far as files are generated from them.

use schemars::schema_for;
use serde_json::{Value as Json, json};

use super::message_type::MessageType;
use super::methods::methods;
use super::protocol::*;
use super::typescript::TypeScript;

/// A method's name and the generators of its types.
pub(super) struct MethodTypes {
    pub(super) name: &'static str,
    pub(super) schema: fn() -> Json,
    /// Returns the names of the parameters' and the result's type.
    pub(super) typescript: fn(&mut TypeScript) -> (String, String),
}

impl MethodTypes {
    pub(super) fn request<Params: MessageType, Answer: MessageType>(name: &'static str) -> Self {
        Self {
            name,
            schema: || json!({"params": schema_for!(Params), "result": schema_for!(Answer)}),
            typescript: |types| (types.name::<Params>(), types.name::<Answer>()),
        }
    }

    fn notification<Params: MessageType>(name: &'static str) -> Self {
        Self {
            name,
            schema: || json!({"params": schema_for!(Params)}),
            typescript: |types| (types.name::<Params>(), String::new()),
        }
    }
}

/// Returns the requests of a host.
pub(super) fn requests() -> Vec<MethodTypes> {
    methods().into_iter().map(|method| method.types).collect()
}

/// Returns the notifications to a host.
pub(super) fn notifications() -> Vec<MethodTypes> {
    vec![
        MethodTypes::notification::<TurnEventParams>("turn/event"),
        MethodTypes::notification::<LogMessageParams>("log/message"),
    ]
}

/// Returns the requests to a host that supports them.
pub(super) fn host_requests() -> Vec<MethodTypes> {
    vec![
        MethodTypes::request::<ToolCallParams, ToolCallResult>("tool/call"),
        MethodTypes::request::<PermissionRequestParams, PermissionRequestResult>(
            "permission/request",
        ),
    ]
}
