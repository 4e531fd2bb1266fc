//! Front ends. A door only translates between its own protocol and the rooms below. What
//! several doors need stands beside them.

mod backends;
mod catalogue;
pub mod cli;
mod files;
pub mod gateway;
mod keeping;
mod leaving;
mod misread;
mod parked;
pub mod rpc;
mod sessions;
