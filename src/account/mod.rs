//! Who we are to Cursor: an API key, and the access token it is exchanged for.
//!
//! Secrets live in [`secrecy::SecretString`] and never reach a log, an error text or a
//! `Debug` print. This room reads no other program's credentials.

mod exchange;
mod key;
mod token;

pub use exchange::{Exchange, ExchangeError, HttpExchange};
pub use key::{ApiKey, KeyError};
pub use token::{Account, AuthorizedError, Issued};
