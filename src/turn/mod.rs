//! One turn of a host: what is shown of a run, and how its end is worded.

pub mod final_text;
pub mod overflow;
