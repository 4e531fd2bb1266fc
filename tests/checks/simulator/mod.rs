//! Tests the simulator with minimal HTTP/1.1 and HTTP/2 clients and with the official client.
//! Shares no code with the crate's own client.

mod command;
mod expectations;
mod faults;
mod network;
mod official_client;
mod raw_client;
mod responder;
mod scenario_files;
