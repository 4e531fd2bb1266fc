//! End-to-end tests: the real binary, real HTTP, the real official client.

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
mod bounded_retries;
mod bridge_debug;
mod by_host;
mod canary;
mod challenge;
mod cli;
mod client;
mod clock;
mod closing;
mod commands;
mod compare;
mod confined;
mod crowd;
mod debug;
mod drift;
mod effects_once;
mod endpoint;
mod endpoint_attacks;
mod endpoint_crowd;
mod endpoint_sessions;
mod fallback;
mod faults;
mod full;
mod gateway;
mod gateway_client;
mod gateway_ends;
mod gateway_tools;
mod gateway_words;
mod hooks;
mod host_tools;
mod hostile;
mod hostile_backend;
mod inline;
mod inside;
mod interleavings;
mod killed;
mod late;
mod lifecycle;
mod login;
mod manners;
mod matrix;
mod mcp_bounds;
mod messages_delivered;
mod misread;
mod models;
mod native;
mod network;
mod official;
mod official_errors;
mod once;
mod order;
mod origins;
mod ours;
mod panicking;
mod policy;
mod pressure;
mod recovery;
mod repeated;
mod replay;
mod resources;
mod resume;
mod retrying;
mod rpc;
mod rules;
mod sdk;
mod settings;
mod sides;
mod soak;
mod steering;
mod stopped;
mod talk;
mod terminal_text;
mod text_once;
mod trust;
mod unary;
mod watchdog;
mod wire;
mod within_a_second;
