//! Every text that cursor-sidecar writes to a model, by topic, each with a snapshot that shows all
//! of it: a change of a single word is seen in review. These texts are product text: short,
//! imperative, exact.
//!
//! Three kinds of text are not here. The host's system prompt, the user's messages and the output
//! of tools are passed on as they are. Results that must equal the official client's word by word
//! are beside the code that is compared with it ([`crate::handlers`]). Problems of the user's
//! configuration are shown to the user.

pub mod contract;
pub mod recovery;
pub(crate) mod refusals;
pub mod tools;

pub use recovery::*;
