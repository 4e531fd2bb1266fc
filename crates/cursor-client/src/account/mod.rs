//! Authentication with Cursor: API keys, the access token a key is exchanged for, the browser
//! login that creates a key, and the account's profile and plan.
//!
//! Secrets live in [`secrecy::SecretString`] and never reach a log, an error text or a
//! `Debug` output. This module never reads the credentials of other programs.

mod credential_store;
mod dashboard;
mod exchange;
mod key;
mod login;
mod token;

pub use credential_store::{KeySource, StoredLogin, find_key};
pub use dashboard::{Dashboard, SubscriptionPlan, UserProfile};
pub use exchange::{ExchangeError, HttpExchange, TokenExchange};
pub use key::{ApiKey, KeyError};
pub use login::{BrowserLogin, LoginError};
pub use token::{Account, AuthorizedError, IssuedToken};
