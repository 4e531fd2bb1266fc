//! Who we are to Cursor: an API key, the access token it is exchanged for, the browser login
//! that makes a key, and what Cursor says about the account.
//!
//! Secrets live in [`secrecy::SecretString`] and never reach a log, an error text or a
//! `Debug` print. This room reads no other program's credentials.

mod dashboard;
mod exchange;
mod key;
mod login;
mod stored;
mod token;

pub use dashboard::{Dashboard, Me, Plan};
pub use exchange::{Exchange, ExchangeError, HttpExchange};
pub use key::{ApiKey, KeyError};
pub use login::{Login, LoginError};
pub use stored::{Forgotten, KeySource, StoredLogin, find_key};
pub use token::{Account, AuthorizedError, Issued};
