//! One turn of a host: what is sent to Cursor, what the host is shown, and the text of a failure.
//!
//! Each session is one task that owns its conversation. Turns of one session run in order; sessions
//! are independent of each other.

mod cause;
pub mod final_text;
mod launch;
mod live;
mod memory;
mod noted;
pub mod overflow;
mod policy;
mod recover;
mod request;
mod session;
mod show;
mod steer;
mod tally;
pub mod usage;
mod wording;

pub use cause::Cause;
pub use policy::{Bridging, LONGEST_PARK, Policy, Questions};
pub use request::{Door, Hands, Keep, Stop, TurnEvent, TurnRequest, TurnResult, turn_events};
pub use session::{QueuedTurn, Session, SessionEnd};
pub use show::{Follows, Record, Surface, is_card};
pub use steer::words;
pub use wording::{LOST, Lost, too_long, wording};
