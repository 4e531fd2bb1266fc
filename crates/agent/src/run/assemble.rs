//! Builds a backend from its options: endpoints, TLS trust, client identity, API key.

use std::sync::Arc;

use super::backend::Backend;
use cursor_client::ClientOptions;
use cursor_client::account::{Account, ApiKey, Dashboard, HttpExchange, KeyError, find_key};
use cursor_client::endpoint::{EndpointError, Endpoints};
use cursor_client::http_clients::Http;
use cursor_client::http_version::Choice;
use cursor_proto::drift::Drift;

/// Why a backend could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// An endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No usable key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Backend {
    /// Builds a backend for the user's own key. Opens no connection and reads no certificate yet.
    /// Must be called inside a Tokio runtime.
    pub fn new(options: &ClientOptions) -> Result<Self, AssembleError> {
        let endpoints = Endpoints::resolve(&options.endpoints)?;
        let (key, _) = find_key(None, options)?;
        Ok(Self::assemble(endpoints, key, options))
    }

    /// Builds a backend for the given key, like [`new`](Self::new).
    pub fn with_key(key: ApiKey, options: &ClientOptions) -> Result<Self, AssembleError> {
        let endpoints = Endpoints::resolve(&options.endpoints)?;
        Ok(Self::assemble(endpoints, key, options))
    }

    fn assemble(endpoints: Endpoints, key: ApiKey, options: &ClientOptions) -> Self {
        foundation::secrets().learn(key.secret());
        let http = Arc::new(Http::new(options.trust.clone()));
        let account = Account::start(HttpExchange {
            http: Arc::clone(&http),
            base: endpoints.backend.clone(),
            key,
        });
        Self {
            http,
            drift: Arc::new(Drift::default()),
            endpoints,
            identity: options.identity.clone(),
            choice: Arc::new(Choice::new(options.http_version)),
            account,
        }
    }

    /// Returns a client of the account service.
    pub fn dashboard(&self) -> Dashboard {
        Dashboard::new(
            Arc::clone(&self.http),
            self.endpoints.backend.clone(),
            self.identity.clone(),
        )
    }
}

/// Returns a client of the account service that needs no key, and the endpoints in use.
pub fn dashboard(options: &ClientOptions) -> Result<(Dashboard, Endpoints), AssembleError> {
    let endpoints = Endpoints::resolve(&options.endpoints)?;
    let http = Arc::new(Http::new(options.trust.clone()));
    let dashboard = Dashboard::new(http, endpoints.backend.clone(), options.identity.clone());
    Ok((dashboard, endpoints))
}
