//! `cursor-sidecar`: use Cursor's models outside Cursor.
//!
//! This package is the product: it reads the configuration and serves the front ends, which only
//! translate. Everything else is in `crates/`; `docs/architecture.md` has the map.

mod account_checkup;
pub mod acp;
mod backends;
mod checkup;
pub mod cli;
pub mod config;
mod file_limit;
pub mod gateway;
mod image_url;
mod last_error;
mod model_resolver;
mod reachability;
pub mod rpc;
mod session_options;
mod shutdown_signal;
pub mod telemetry;
mod usage_report;
