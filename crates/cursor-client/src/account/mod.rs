//! Authentication with Cursor: API keys, the access token a key is exchanged for, logins and
//! their renewal, and the account's profile and plan.
//!
//! Secrets live in [`secrecy::SecretString`] and never reach a log, an error text or a
//! `Debug` output. Of other programs, only the login file of the Cursor CLI is read, and only if
//! the user permits it.

mod claims;
mod credential;
mod credential_store;
mod dashboard;
mod exchange;
mod key;
mod keyring;
mod login;
mod login_exchange;
mod refresh;
mod sources;
mod token;

pub use credential::{Credential, LoginTokens};
pub use credential_store::{LoginFileError, StoredLogin};
pub use dashboard::{Dashboard, SubscriptionPlan, UserProfile};
pub use exchange::{ExchangeError, HttpExchange, TokenExchange};
pub use key::{ApiKey, KeyError};
pub use keyring::{Keyring, KeyringError};
pub use login::{BrowserLogin, LoginError};
pub use login_exchange::LoginExchange;
pub use sources::{CredentialSource, credential_of, find_credential};
pub use token::{Account, AuthorizedError, IssuedToken};
