//! One turn of a host: what is sent to Cursor, what the host is shown, and the text of a failure.
//!
//! Each session is one task that owns its conversation. Turns of one session run in order; sessions
//! are independent of each other.

mod activity_display;
mod channels;
pub mod context_overflow;
mod conversation_slot;
mod error_text;
mod failure_cause;
pub mod final_text;
mod intent_logging;
mod live_run;
mod policy;
mod recover;
mod request;
mod session;
mod start_run;
mod turn_progress;
pub mod usage;

pub(crate) use activity_display::Recorded;
pub use activity_display::{Record, Surface, is_card};
pub use channels::{HostRequest, MessageSender, TurnChannels, TurnHandle, turn_channels};
pub use error_text::{ContinuationLost, LOST, UserCommands, too_long, with_next_step, wording};
pub use failure_cause::Cause;
pub use policy::{LONGEST_PARK, Policy};
pub use request::{Frontend, HostToolMode, Keep, Stop, TurnEvent, TurnRequest, TurnResult};
pub use session::{Session, SessionEnd};
pub use start_run::user_message;
