//! End-to-end tests: the real binary, real HTTP, the real official client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub
)]

mod account;
mod acp;
mod answer_tracking;
mod bounded_retries;
mod bridge_debug_log;
mod bridge_rules;
mod call_batches;
mod cancelled_turns;
mod challenge_pages;
mod cli;
mod client_scenarios;
mod client_tools;
mod closed_sessions;
mod compare_messages;
mod compare_native_tools;
mod confinement;
mod cursor_settings;
mod debug_events;
mod debug_log;
mod disk_full;

mod effects_once;
mod exactly_once;
mod examples;
mod exit_within_a_second;
mod fault_matrix;
mod gateway_access;
mod gateway_bounds;
mod gateway_chat_options;
mod gateway_clients;
mod gateway_interrupted;
mod gateway_messages;
mod gateway_openai_client;
mod gateway_opencode;
mod gateway_page;
mod gateway_requests;
mod gateway_responses;
mod gateway_sessions;
mod gateway_tools;
mod hooks;
mod host_tools;
mod hostile_backend;
mod http_fallback;
mod inline_tools;
mod interleavings;
mod invalid_settings;
mod keyring;
mod late_checkpoints;
mod login;
mod long_waits;
mod many_sessions;
mod mcp_endpoint;
mod mcp_endpoint_attacks;
mod mcp_endpoint_load;
mod mcp_endpoint_sessions;
mod mcp_limits;
mod mcp_resources;
mod message_order;
mod message_spellings;
mod messages_delivered;
mod models;
mod native_tool_policy;
mod native_tools_by_host;
mod network;
mod official_client;
mod official_client_errors;
mod panics;
mod project_trust;
mod protocol_drift;
mod recovery;
mod repeated_commands;
mod request_context;
mod resume;
mod retries;
mod rpc;
mod secret_leaks;
mod session_commands;
mod side_requests;
mod sidecar_killed;
mod slow_host;
mod soak;
mod steering;
mod stopped_processes;
mod terminal_text;
mod text_once;
mod tool_activity;
mod unary_calls;
mod untrusted_workspace;
mod watchdog;
mod web_origins;
mod wire_faults;
