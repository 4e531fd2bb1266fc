//! Front ends. Each one only translates between its own protocol and the modules below. What
//! several of them need is in this folder.

mod backends;
pub mod cli;
mod files;
pub mod gateway;
mod keeping;
mod leaving;
mod misread;
mod model_resolver;
mod parked;
pub mod rpc;
mod sessions;
