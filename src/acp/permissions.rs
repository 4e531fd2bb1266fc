//! Permission for native tools, asked of the client and remembered for the session.

use std::collections::BTreeMap;

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, ToolCall, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};

use super::Connection;
use super::tool_call_display::ToolCallView;
use agent_tools::policy::NativeTool;

const ALLOW_ONCE: &str = "allow_once";
const ALLOW_ALWAYS: &str = "allow_always";
const REJECT_ONCE: &str = "reject_once";
const REJECT_ALWAYS: &str = "reject_always";

/// What the user has decided about kinds of tools for the rest of the session.
#[derive(Debug, Default)]
pub(super) struct RememberedPermissions(BTreeMap<NativeTool, bool>);

impl RememberedPermissions {
    /// Returns whether a tool call may be executed; asks unless the user has decided for the
    /// session. A client that fails or cancels does not permit it.
    pub(super) async fn is_allowed(
        &mut self,
        tool: NativeTool,
        call: &ToolCall,
        client: &Connection,
        session: &SessionId,
    ) -> bool {
        if let Some(allowed) = self.0.get(&tool) {
            return *allowed;
        }
        let kind = tool.name();
        let options = [
            (
                ALLOW_ONCE,
                "Allow".to_owned(),
                PermissionOptionKind::AllowOnce,
            ),
            (
                ALLOW_ALWAYS,
                format!("Always allow {kind} in this session"),
                PermissionOptionKind::AllowAlways,
            ),
            (
                REJECT_ONCE,
                "Reject".to_owned(),
                PermissionOptionKind::RejectOnce,
            ),
            (
                REJECT_ALWAYS,
                format!("Always reject {kind} in this session"),
                PermissionOptionKind::RejectAlways,
            ),
        ];
        let options = options.map(|(id, name, kind)| PermissionOption::new(id, name, kind));
        let update = ToolCallUpdate::new(
            call.tool_call_id.clone(),
            ToolCallUpdateFields::new()
                .title(call.title.clone())
                .kind(call.kind)
                .locations(call.locations.clone())
                .content(call.content.clone()),
        );
        let request = RequestPermissionRequest::new(session.clone(), update, options.into());
        let answer = client.send_request(request).block_task().await;
        let Ok(RequestPermissionOutcome::Selected(selected)) = answer.map(|it| it.outcome) else {
            return false;
        };
        let choice = &*selected.option_id.0;
        let allowed = matches!(choice, ALLOW_ONCE | ALLOW_ALWAYS);
        if matches!(choice, ALLOW_ALWAYS | REJECT_ALWAYS) {
            self.0.insert(tool, allowed);
        }
        allowed
    }
}

/// Returns the first display of a tool call.
pub(super) fn new_call(id: &str, view: &ToolCallView, status: ToolCallStatus) -> ToolCall {
    ToolCall::new(id.to_owned(), view.title.clone())
        .kind(view.kind)
        .status(status)
        .locations(view.locations())
}
