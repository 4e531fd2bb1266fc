//! Whole paths: the real binary, real HTTP, the real official client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub
)]

mod aborting;
mod answers;
mod audit;
mod backend;
mod batches;
mod bridge_debug;
mod by_host;
mod canary;
mod cli;
mod client;
mod clock;
mod closing;
mod commands;
mod compare;
mod crowd;
mod debug;
mod drift;
mod endpoint;
mod endpoint_sessions;
mod fallback;
mod faults;
mod host_tools;
mod inline;
mod inside;
mod interleavings;
mod late;
mod login;
mod manners;
mod matrix;
mod models;
mod native;
mod network;
mod official;
mod official_errors;
mod once;
mod order;
mod ours;
mod pressure;
mod recovery;
mod replay;
mod resume;
mod retrying;
mod rpc;
mod sdk;
mod settings;
mod sides;
mod soak;
mod steering;
mod talk;
mod unary;
mod watchdog;
mod wire;
