//! Any bytes as a server message, a state, a value, a catalogue or an end of stream cause at
//! most an error. A message that decodes must round-trip.
#![no_main]

use bytes::Bytes;
use cursor_client::connect_error::{EndStream, RemoteError};
use cursor_proto::agent::v1::{AgentClientMessage, AgentServerMessage};
use cursor_proto::drift::Drift;
use cursor_proto::{available_models, field_order, protobuf_value, state};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(message) = AgentServerMessage::decode(bytes.clone()) {
        let again = AgentServerMessage::decode(field_order::server(&message));
        // Compare the printed form, because NaN is not equal to itself.
        assert_eq!(
            format!("{again:?}"),
            format!("{:?}", Ok::<_, prost::DecodeError>(message))
        );
    }
    if let Ok(message) = AgentClientMessage::decode(bytes.clone()) {
        let again = AgentClientMessage::decode(field_order::client(&message));
        assert_eq!(
            format!("{again:?}"),
            format!("{:?}", Ok::<_, prost::DecodeError>(message))
        );
    }
    Drift::default().inspect("agent.v1.AgentServerMessage", data);
    if let Ok(stripped) = state::without_usage_tree(&bytes) {
        assert_eq!(state::without_usage_tree(&stripped), Ok(stripped.clone()));
    }
    let _ = state::occupancy(&bytes);
    let json = protobuf_value::decode_or_text(&bytes);
    let _ = protobuf_value::decode(&protobuf_value::encode(&json));
    let _ = available_models::decode(bytes);
    let _ = EndStream::parse(data);
    let _ = RemoteError::from_response(500, data);
});
