//! Cursor's messages, generated from `schema/proto` (`make schema`); never edited by hand.

#![allow(missing_docs, clippy::all, unreachable_pub)]

/// `aiserver.v1`: account, configuration and catalogue calls, error details.
pub mod aiserver {
    pub mod v1 {
        include!("aiserver.v1.rs");
    }
}

/// `agent.v1`: the run and everything that travels on it.
pub mod agent {
    pub mod v1 {
        include!("agent.v1.rs");
    }
}

/// The schema with every field typed, for reading messages by name.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.binpb");
