//! Cursor's messages, and how they are encoded. No I/O.
//!
//! [`agent`] and [`aiserver`] are generated from `schema/proto` (`make schema`) and never edited
//! by hand.

pub mod available_models;
pub mod connect_code;
pub mod drift;
pub mod envelope;
pub mod field_order;
pub mod protobuf_value;
pub mod raw_fields;
pub mod state;
pub mod to_json;
pub mod tool_gates;

/// `aiserver.v1`: account, configuration and catalogue calls, error details.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod aiserver {
    pub mod v1 {
        include!("generated/aiserver.v1.rs");
    }
}

/// `agent.v1`: the run and everything that travels on it.
#[allow(missing_docs, clippy::all, unreachable_pub)]
pub mod agent {
    pub mod v1 {
        include!("generated/agent.v1.rs");
    }
}

/// The schema with every field typed, for reading messages by name.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.binpb");
