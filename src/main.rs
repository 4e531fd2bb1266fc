//! The `cursor-sidecar` command.

fn main() {}
