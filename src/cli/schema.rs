//! `cursor-sidecar schema`: prints the protocol for hosts.

use std::io::Write as _;

use crate::rpc;

/// Print the JSON Schema of the JSON-RPC protocol.
#[derive(Debug, clap::Args)]
pub struct SchemaCommand {}

impl SchemaCommand {
    /// Prints the schema.
    pub fn run(self) -> std::io::Result<()> {
        std::io::stdout().write_all(rpc::SCHEMA.as_bytes())
    }
}
