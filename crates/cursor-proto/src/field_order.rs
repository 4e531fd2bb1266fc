//! Encodes fields in ascending order, as the official client does.
//!
//! prost writes a oneof at the position of its lowest number, which is out of order in the few
//! messages whose oneof numbers surround plain fields. Receivers accept that, but our bytes
//! should equal the official client's, so those messages are sorted here.

use bytes::Bytes;
use prost::Message;

use super::raw_fields::{FieldError, fields, put_bytes};
use crate::agent::v1::{AgentClientMessage, AgentServerMessage};

/// Which parts of a message must be sorted.
struct Order {
    sort: Sort,
    children: &'static [(u32, &'static Order)],
}

#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Ascending,
    AsIs,
}

const fn through(children: &'static [(u32, &'static Order)]) -> Order {
    Order {
        sort: Sort::AsIs,
        children,
    }
}

const fn sorted(children: &'static [(u32, &'static Order)]) -> Order {
    Order {
        sort: Sort::Ascending,
        children,
    }
}

static LEAF: Order = sorted(&[]);
/// `ReadResult.success`
static READ_RESULT: Order = through(&[(1, &LEAF)]);
static EXEC_CLIENT: Order = sorted(&[(7, &READ_RESULT), (29, &READ_RESULT)]);
/// `UserMessage.selected_context.selected_images`
static USER_MESSAGE: Order = through(&[(3, &SELECTED_CONTEXT)]);
static SELECTED_CONTEXT: Order = through(&[(1, &LEAF)]);
static USER_MESSAGE_ACTION: Order = through(&[(1, &USER_MESSAGE), (4, &USER_MESSAGE)]);
/// `InjectContextAction.user_context.user_message`
static INJECT_CONTEXT: Order = through(&[(3, &USER_CONTEXT)]);
static USER_CONTEXT: Order = through(&[(1, &USER_MESSAGE)]);
/// `StartPlanAction.user_message`, `SubscriptionNotificationAction.notifications`
static WITH_USER_MESSAGE: Order = through(&[(1, &USER_MESSAGE)]);
static ACTION: Order = sorted(&[
    (1, &USER_MESSAGE_ACTION),
    (6, &WITH_USER_MESSAGE),
    (16, &WITH_USER_MESSAGE),
    (19, &INJECT_CONTEXT),
]);
static RUN_REQUEST: Order = through(&[(2, &ACTION)]);
static CLIENT: Order = through(&[(1, &RUN_REQUEST), (2, &EXEC_CLIENT), (4, &ACTION)]);

/// `ToolCall.read_tool_call.result.success`
static TOOL_CALL: Order = sorted(&[(8, &READ_TOOL_CALL)]);
static READ_TOOL_CALL: Order = through(&[(2, &READ_RESULT)]);
static TOOL_UPDATE: Order = through(&[(2, &TOOL_CALL)]);
/// Field 6 is `UserMessageAppendedUpdate.user_message`.
static UPDATE: Order = sorted(&[
    (2, &TOOL_UPDATE),
    (3, &TOOL_UPDATE),
    (6, &WITH_USER_MESSAGE),
    (7, &TOOL_UPDATE),
]);
/// `SubagentArgs.selected_context`
static EXEC_SERVER: Order = sorted(&[(28, &SUBAGENT)]);
static SUBAGENT: Order = through(&[(17, &SELECTED_CONTEXT)]);
static SERVER: Order = through(&[(1, &UPDATE), (2, &EXEC_SERVER)]);

/// Encodes a client message as it is sent.
pub fn client(message: &AgentClientMessage) -> Bytes {
    encode(message, &CLIENT)
}

/// Encodes a server message as it is sent.
pub fn server(message: &AgentServerMessage) -> Bytes {
    encode(message, &SERVER)
}

fn encode(message: &impl Message, order: &Order) -> Bytes {
    let bytes = Bytes::from(message.encode_to_vec());
    match arrange(&bytes, order) {
        Ok(Some(arranged)) => arranged,
        // prost's own encoding always parses; if it did not, its order would be valid too.
        Ok(None) | Err(_) => bytes,
    }
}

/// Returns the sorted message; `None` if it is in order already.
fn arrange(message: &Bytes, order: &Order) -> Result<Option<Bytes>, FieldError> {
    let mut parts: Vec<(u32, Bytes)> = Vec::new();
    let mut changed = false;
    for field in fields(message.clone()) {
        let field = field?;
        let child = order
            .children
            .iter()
            .find(|(number, _)| *number == field.number);
        let arranged = match (child, field.value.bytes()) {
            (Some((_, child)), Some(inner)) => arrange(inner, child)?,
            _ => None,
        };
        match arranged {
            Some(inner) => {
                let mut raw = Vec::new();
                put_bytes(&mut raw, field.number, &inner);
                parts.push((field.number, raw.into()));
                changed = true;
            }
            None => parts.push((field.number, field.raw)),
        }
    }
    if order.sort == Sort::Ascending && !parts.is_sorted_by_key(|(number, _)| *number) {
        parts.sort_by_key(|(number, _)| *number);
        changed = true;
    }
    Ok(changed.then(|| {
        parts
            .iter()
            .flat_map(|(_, raw)| raw.iter().copied())
            .collect()
    }))
}
