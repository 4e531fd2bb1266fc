//! Ten messages recorded on the wire: our types encode to exactly those bytes and decode from them.

use bytes::Bytes;
use cursor_proto::agent::v1::*;
use cursor_proto::field_order;
use prost::Message as _;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn client(message: agent_client_message::Message, wire: &str) {
    let message = AgentClientMessage {
        message: Some(message),
    };
    let bytes = field_order::client(&message);
    assert_eq!(hex(&bytes), wire);
    assert_eq!(AgentClientMessage::decode(bytes).unwrap(), message);
}

fn server(message: agent_server_message::Message, wire: &str) {
    let message = AgentServerMessage {
        message: Some(message),
        ttft_breakdown: None,
    };
    let bytes = field_order::server(&message);
    assert_eq!(hex(&bytes), wire);
    assert_eq!(AgentServerMessage::decode(bytes).unwrap(), message);
}

fn control(message: exec_client_control_message::Message) -> agent_client_message::Message {
    agent_client_message::Message::ExecClientControlMessage(ExecClientControlMessage {
        message: Some(message),
    })
}

#[test]
fn client_messages() {
    client(
        agent_client_message::Message::ClientHeartbeat(ClientHeartbeat {}),
        "3a00",
    );
    client(
        control(exec_client_control_message::Message::StreamClose(
            ExecClientStreamClose { id: 1 },
        )),
        "2a040a020801",
    );
    client(
        control(exec_client_control_message::Message::Heartbeat(
            ExecClientHeartbeat { id: 12 },
        )),
        "2a041a02080c",
    );
    client(
        agent_client_message::Message::KvClientMessage(KvClientMessage {
            id: 1,
            message: Some(kv_client_message::Message::SetBlobResult(SetBlobResult {
                error: None,
            })),
        }),
        "1a0408011a00",
    );
    client(
        agent_client_message::Message::KvClientMessage(KvClientMessage {
            id: 3,
            message: Some(kv_client_message::Message::GetBlobResult(GetBlobResult {
                blob_data: None,
                error: None,
            })),
        }),
        "1a0408031200",
    );
    client(
        agent_client_message::Message::InteractionResponse(InteractionResponse {
            id: 1,
            result: Some(interaction_response::Result::WebSearchRequestResponse(
                WebSearchRequestResponse {
                    result: Some(web_search_request_response::Result::Approved(
                        web_search_request_response::Approved {},
                    )),
                },
            )),
        }),
        "3206080112020a00",
    );
}

#[test]
fn server_messages() {
    let update = |message| {
        agent_server_message::Message::InteractionUpdate(InteractionUpdate {
            message: Some(message),
            message_started_at_ms: None,
        })
    };
    server(
        update(interaction_update::Message::Heartbeat(HeartbeatUpdate {})),
        "0a026a00",
    );
    server(
        agent_server_message::Message::ExecServerMessage(ExecServerMessage {
            id: 1,
            exec_id: "exec-1".into(),
            message: Some(exec_server_message::Message::RequestContextArgs(
                RequestContextArgs::default(),
            )),
            ..ExecServerMessage::default()
        }),
        "120c080152007a06657865632d31",
    );
    server(
        agent_server_message::Message::ExecServerControlMessage(ExecServerControlMessage {
            message: Some(exec_server_control_message::Message::Abort(
                ExecServerAbort { id: 43 },
            )),
        }),
        "2a040a02082b",
    );
    server(
        update(interaction_update::Message::TurnEnded(TurnEndedUpdate {
            input_tokens: Some(100),
            output_tokens: Some(20),
            cache_read_tokens: Some(30),
            cache_write_tokens: Some(4),
            reasoning_tokens: Some(5),
        })),
        "0a0c720a08641014181e20042805",
    );
}

/// Field numbers on both sides of a plain field: the order must not depend on the oneof's variant.
#[test]
fn results_go_out_in_ascending_order() {
    let exec = |message| {
        let message = AgentClientMessage {
            message: Some(agent_client_message::Message::ExecClientMessage(
                ExecClientMessage {
                    id: 7,
                    message: Some(message),
                    local_execution_time_ms: Some(3),
                    ..ExecClientMessage::default()
                },
            )),
        };
        hex(&field_order::client(&message))
    };
    let read = exec_client_message::Message::ReadResult(ReadResult {
        result: Some(read_result::Result::Success(ReadSuccess {
            path: "p".into(),
            total_lines: 2,
            file_size: 9,
            output: Some(read_success::Output::Data(Bytes::from_static(b"d"))),
            ..ReadSuccess::default()
        })),
    });
    assert_eq!(exec(read), "121308073a0c0a0a0a0170180220092a0164b80203");
    let pi = exec_client_message::Message::PiLsResult(PiLsExecResult::default());
    assert_eq!(exec(pi), "12080807b80203a20300");
}
