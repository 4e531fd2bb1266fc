//! Front ends. A door only translates between its own protocol and the rooms below.

mod catalogue;
pub mod cli;
pub mod rpc;
