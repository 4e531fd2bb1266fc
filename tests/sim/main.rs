//! The simulator from outside: bare HTTP/1.1 and HTTP/2 clients of our own, and the
//! official one. Nothing here shares code with the client of this house.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod command;
mod faults;
mod files;
mod judging;
mod network;
mod official;
mod responder;
