//! Cursor's models as a host can show and choose them.
//!
//! One description of a model ([`Item`]) from whichever call Cursor answers, rows a host
//! registers ([`Rows`]), and the way back from a row, a thinking level and a speed to what
//! Cursor is sent ([`select`]). Everything about a model is read from its parameters: no id is
//! known by name here. This room opens no run, keeps no secret and knows no host's protocol;
//! its files in the state folder are the cached list, learned windows and preferences.

mod cache;
mod collate;
mod discover;
mod finder;
mod item;
mod last;
mod listing;
mod nearest;
mod prefs;
mod rows;
mod selection;
mod snapshot;
mod speed;
mod thinking;
mod windows;

pub use crate::diag::private::StoreError;
pub use cache::{Fingerprint, Policy, time_to_live};
pub use discover::{Access, Credential, DiscoverError};
pub use finder::{BUDGET, Finder, Wanted};
pub use item::{Choice, Item, Parameter, ParameterValue, Variant};
pub use listing::{Listing, Reason, Source};
pub use nearest::UnknownModel;
pub use prefs::{Prefs, save_speed};
pub use rows::{Found, MAX_OUTPUT, Row, Rows, base};
pub use selection::{Selection, Speed, select};
pub use snapshot::render as render_snapshot;
pub use speed::{Decided, Whose, Wishes, decide};
pub use thinking::{Level, LevelMap, Profile, level_map};
pub use windows::{Learned, Windows, learn, parse_context, positive};
