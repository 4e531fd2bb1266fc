//! Front ends. A door only translates between its own protocol and the rooms below. What
//! several doors need stands beside them.

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
