//! One turn of a host: what is sent, what is shown, how its end is worded.
//!
//! A session is one task that owns its conversation; turns of one session follow each
//! other, sessions do not know of each other.

pub mod final_text;
pub mod overflow;
mod session;
pub mod usage;
mod wording;

pub use session::{Session, Stop, TurnEvent, TurnRequest, TurnResult};
pub use wording::wording;
