//! Builds a backend from the environment: endpoints, TLS trust, client identity, API key.

use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;

use super::backend::Backend;
use cursor_client::account::{Account, ApiKey, Dashboard, HttpExchange, KeyError, find_key};
use cursor_client::choice::{Choice, Preference};
use cursor_client::endpoint::{EndpointError, Endpoints};
use cursor_client::headers::{Checksum, HttpVersion, Identity, Privacy};
use cursor_client::http::{Http, Trust};
use cursor_proto::drift::Drift;
use foundation::settings::{self, Warning};

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
    /// Builds a backend from the environment. Opens no connection and reads no certificate yet.
    /// Must be called inside a Tokio runtime.
    pub fn from_env(
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<(Self, Vec<Warning>), AssembleError> {
        let endpoints = Endpoints::resolve(env, home)?;
        let (key, _) = find_key(None, env, home)?;
        Ok(Self::assemble(endpoints, key, env))
    }

    /// Builds a backend from the environment for the given key.
    pub fn with_key(
        key: ApiKey,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<(Self, Vec<Warning>), AssembleError> {
        Ok(Self::assemble(Endpoints::resolve(env, home)?, key, env))
    }

    /// Returns a warning for each of these settings that has an invalid value.
    pub fn misread(env: &impl Fn(&str) -> Option<String>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        preference(env, &mut warnings);
        identity(env, &mut warnings);
        warnings
    }

    fn assemble(
        endpoints: Endpoints,
        key: ApiKey,
        env: &impl Fn(&str) -> Option<String>,
    ) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        foundation::secrets().learn(key.secret());
        let http = Arc::new(Http::new(Trust::from_env(env)));
        let preference = preference(env, &mut warnings);
        let identity = identity(env, &mut warnings);
        let account = Account::start(HttpExchange {
            http: Arc::clone(&http),
            base: endpoints.backend.clone(),
            key,
        });
        let backend = Self {
            http,
            drift: Arc::new(Drift::default()),
            endpoints,
            identity,
            choice: Arc::new(Choice::new(preference)),
            account,
        };
        (backend, warnings)
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
pub fn dashboard(
    env: &impl Fn(&str) -> Option<String>,
    home: Option<&Path>,
) -> Result<(Dashboard, Endpoints), AssembleError> {
    let endpoints = Endpoints::resolve(env, home)?;
    let http = Arc::new(Http::new(Trust::from_env(env)));
    // The first turn reports invalid settings.
    let identity = identity(env, &mut Vec::new());
    let dashboard = Dashboard::new(http, endpoints.backend.clone(), identity);
    Ok((dashboard, endpoints))
}

fn preference(env: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<Warning>) -> Preference {
    settings::choose(
        env,
        "PI_CURSOR_HTTP",
        &[
            ("auto", Preference::Auto),
            ("1", Preference::Always(HttpVersion::Http1)),
            ("2", Preference::Always(HttpVersion::Http2)),
        ],
        Preference::Auto,
        warnings,
    )
}

fn identity(env: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<Warning>) -> Identity {
    let default = Identity::default();
    Identity {
        client_type: header_setting(env, "PI_CURSOR_CLIENT_TYPE", default.client_type, warnings),
        client_version: header_setting(
            env,
            "PI_CURSOR_CLIENT_VERSION",
            default.client_version,
            warnings,
        ),
        privacy: settings::choose(
            env,
            "PI_CURSOR_GHOST_MODE",
            &[("true", Privacy::Ghost), ("false", Privacy::Shared)],
            default.privacy,
            warnings,
        ),
        checksum: settings::choose(
            env,
            "PI_CURSOR_CHECKSUM",
            &[("off", Checksum::Off), ("on", Checksum::Token)],
            default.checksum,
            warnings,
        ),
    }
}

/// Reads a setting that is a header value of visible characters.
fn header_setting(
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: HeaderValue,
    warnings: &mut Vec<Warning>,
) -> HeaderValue {
    let Some(text) = env(name).filter(|text| !text.is_empty()) else {
        return default;
    };
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    match HeaderValue::from_str(&text) {
        Ok(value) if visible => value,
        _ => {
            if let Some(setting) = settings::find(name) {
                warnings.push(Warning::Value {
                    name: setting.name,
                    value: text,
                    expected: setting.values,
                    default: setting.default,
                });
            }
            default
        }
    }
}
