//! Issues the tokens of a login and renews them early. Of all processes that use one login, one
//! renews it while the others wait, and they use what it has stored.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use secrecy::{ExposeSecret as _, SecretString};

use super::claims;
use super::credential::{Credential, LoginTokens, RENEW_EARLY};
use super::credential_store::{LoginFile, StoredLogin, unix_ms};
use super::exchange::{ExchangeError, TokenExchange};
use super::refresh;
use super::sources::{self, CredentialSource};
use super::token::ASSUMED_LIFETIME;
use crate::ClientOptions;
use crate::endpoint::BaseUrl;
use crate::http_clients::Http;
use foundation::private_files;

/// How long to wait for another process that renews the same login. It has three endpoints to
/// try; a process that takes longer is stuck.
const LOCK_WAIT: Duration = Duration::from_secs(50);
const LOCK_POLL: Duration = Duration::from_millis(25);
/// After Cursor has refused to renew a login, it is not asked again for this long.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10 * 60);

/// The tokens of one login. Cheap to clone.
#[derive(Clone)]
pub struct LoginExchange {
    http: Arc<Http>,
    base: BaseUrl,
    source: CredentialSource,
    /// Where renewed tokens are stored; `None` if they are not.
    file: Option<LoginFile>,
    cli_logins: Vec<std::path::PathBuf>,
    state: Arc<tokio::sync::Mutex<LoginState>>,
    /// The token that the server did not accept.
    rejected: Arc<Mutex<Option<SecretString>>>,
}

struct LoginState {
    login: StoredLogin,
    /// The refusal to renew these tokens, and when it was.
    refused: Option<(tokio::time::Instant, ExchangeError)>,
}

impl LoginExchange {
    /// Uses the tokens of a login from `source`.
    pub fn new(
        http: Arc<Http>,
        base: BaseUrl,
        tokens: LoginTokens,
        source: CredentialSource,
        options: &ClientOptions,
    ) -> Self {
        let file = match source {
            CredentialSource::Login => LoginFile::own(options),
            CredentialSource::Host => LoginFile::of_host(options, &tokens.fingerprint()),
            CredentialSource::Environment
            | CredentialSource::AccessToken
            | CredentialSource::CursorCli => None,
        };
        let mut login = StoredLogin::new(base.to_string(), tokens, None);
        // Unknown, and old enough that only the expiry counts.
        login.issued_ms = 0;
        Self {
            http,
            base,
            source,
            file,
            cli_logins: options.cli_logins.clone(),
            state: Arc::new(tokio::sync::Mutex::new(LoginState {
                login,
                refused: None,
            })),
            rejected: Arc::default(),
        }
    }

    /// Returns tokens that are currently valid, renewed if they expire soon.
    pub async fn tokens(&self) -> Result<LoginTokens, ExchangeError> {
        let mut state = self.state.lock().await;
        self.adopt_stored(&mut state);
        if !self.is_due(&state.login) {
            return Ok(tokens_of(&state.login));
        }
        let outcome = self.renew(&mut state).await;
        let tokens = tokens_of(&state.login);
        match outcome {
            Ok(()) => Ok(tokens),
            // The old token is used as long as it is valid.
            Err(_) if self.is_valid(&tokens) => Ok(tokens),
            Err(error) => Err(error),
        }
    }

    async fn renew(&self, state: &mut LoginState) -> Result<(), ExchangeError> {
        let Some(refresh_token) = tokens_of(&state.login).refresh else {
            return Err(self.end());
        };
        let paused = |(at, error): &(tokio::time::Instant, ExchangeError)| {
            (at.elapsed() < REFUSAL_PAUSE).then(|| error.clone())
        };
        if let Some(error) = state.refused.as_ref().and_then(paused) {
            return Err(error);
        }
        let _lock = self.lock().await;
        if self.adopt_stored(state) && !self.is_due(&state.login) {
            tracing::debug!("login.renewed_elsewhere");
            return Ok(());
        }
        let refresh_token = tokens_of(&state.login).refresh.unwrap_or(refresh_token);
        let preferred = state.login.refresh_endpoint;
        let renewed = refresh::refresh(&self.http, &self.base, &refresh_token, preferred).await;
        let renewed = renewed.and_then(|(tokens, endpoint)| {
            if tokens.is_of_another_account(&tokens_of(&state.login)) {
                return Err(ExchangeError::OtherAccount);
            }
            Ok((tokens, endpoint))
        });
        match renewed {
            Ok((tokens, endpoint)) => {
                state.refused = None;
                state.login.credential = Credential::Login(tokens);
                state.login.issued_ms = unix_ms(SystemTime::now());
                state.login.refresh_endpoint = Some(endpoint);
                self.store(&state.login);
                Ok(())
            }
            Err(error) => {
                if !error.is_transient() {
                    state.refused = Some((tokio::time::Instant::now(), error.clone()));
                }
                Err(error)
            }
        }
    }

    /// Stores renewed tokens. A failure is logged only, because this process has them.
    fn store(&self, login: &StoredLogin) {
        let Some(file) = &self.file else {
            return;
        };
        if let Err(error) = file.write(login) {
            tracing::warn!("the renewed Cursor login is not stored: {error}");
        }
    }

    /// Uses the tokens that another process has stored since, if they are of the same account and
    /// newer. Returns whether they are.
    fn adopt_stored(&self, state: &mut LoginState) -> bool {
        let stored = match self.source {
            CredentialSource::CursorCli => match sources::cli_login(&self.cli_logins) {
                Some(Credential::Login(tokens)) => {
                    let mut login = StoredLogin::new(self.base.to_string(), tokens, None);
                    login.issued_ms = 0;
                    Some(login)
                }
                _ => None,
            },
            _ => self.file.as_ref().and_then(|file| file.read().ok()?),
        };
        let Some(stored) = stored.filter(|login| login.backend == self.base.to_string()) else {
            return false;
        };
        let Credential::Login(theirs) = &stored.credential else {
            return false;
        };
        let ours = tokens_of(&state.login);
        let is_same = theirs.access.expose_secret() == ours.access.expose_secret();
        if is_same {
            // The file also has the time of issue and the endpoint.
            state.login = stored;
            return false;
        }
        let is_newer = theirs.expires() >= ours.expires() || self.is_rejected(&ours);
        if theirs.is_of_another_account(&ours) || !is_newer || self.is_rejected(theirs) {
            return false;
        }
        state.refused = None;
        state.login = stored;
        true
    }

    fn is_rejected(&self, tokens: &LoginTokens) -> bool {
        let rejected = self.rejected.lock();
        let rejected = rejected.unwrap_or_else(PoisonError::into_inner);
        let is_same = |token: &SecretString| token.expose_secret() == tokens.access.expose_secret();
        rejected.as_ref().is_some_and(is_same)
    }

    fn is_valid(&self, tokens: &LoginTokens) -> bool {
        let is_expired = tokens
            .expires()
            .is_some_and(|expiry| expiry <= SystemTime::now());
        !is_expired && !self.is_rejected(tokens)
    }

    /// Whether the tokens should be renewed: five minutes before they expire, or at half their
    /// lifetime if that is later.
    fn is_due(&self, login: &StoredLogin) -> bool {
        let tokens = tokens_of(login);
        if self.is_rejected(&tokens) {
            return true;
        }
        let Some(expiry) = claims::expiry(tokens.access.expose_secret()) else {
            return false;
        };
        renewal_due_ms(login.issued_ms, unix_ms(expiry)) <= unix_ms(SystemTime::now())
    }

    /// Waits for the lock of the login, but not for a process that is stuck.
    async fn lock(&self) -> Option<std::fs::File> {
        let path = self.file.as_ref()?.path();
        let deadline = tokio::time::Instant::now() + LOCK_WAIT;
        loop {
            match private_files::try_lock(path) {
                Ok(Some(lock)) => return Some(lock),
                Ok(None) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(LOCK_POLL).await;
                }
                Ok(None) => {
                    tracing::warn!("another process does not finish renewing the Cursor login");
                    return None;
                }
                Err(error) => {
                    tracing::debug!(%error, "login.no_lock");
                    return None;
                }
            }
        }
    }

    /// Returns the error for tokens that have expired, or were not accepted, and are not renewed.
    /// A source that precedes a login would hide a new login, so its advice is another.
    fn end(&self) -> ExchangeError {
        match self.source {
            CredentialSource::AccessToken => ExchangeError::NotRenewed(
                "CURSOR_ACCESS_TOKEN has expired, or is not an access token of Cursor; set a new one, or remove it to use another credential",
            ),
            CredentialSource::CursorCli => ExchangeError::NotRenewed(
                "the login of the Cursor CLI has expired; use the CLI once, which renews it, or sign in with `cursor-sidecar login`",
            ),
            CredentialSource::Host | CredentialSource::Environment | CredentialSource::Login => {
                ExchangeError::SignedOut("it has expired".into())
            }
        }
    }
}

/// Returns when a token is due. `issued` is 0 if it is not known.
fn renewal_due_ms(issued: u64, expiry: u64) -> u64 {
    let early = expiry.saturating_sub(RENEW_EARLY.as_millis() as u64);
    match issued {
        0 => early,
        // This machine's clock is ahead of Cursor's: renewing at each request would not help.
        issued if expiry <= issued => issued + ASSUMED_LIFETIME.as_millis() as u64,
        issued => early.max(issued + (expiry - issued) / 2),
    }
}

fn tokens_of(login: &StoredLogin) -> LoginTokens {
    match &login.credential {
        Credential::Login(tokens) => tokens.clone(),
        // Not reachable: only tokens are adopted.
        Credential::Key(key) => LoginTokens {
            access: key.secret().clone(),
            refresh: None,
        },
    }
}

impl TokenExchange for LoginExchange {
    fn exchange(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<SecretString, ExchangeError>> + Send>> {
        let login = self.clone();
        Box::pin(async move { login.tokens().await.map(|tokens| tokens.access) })
    }

    fn rejected(&self, token: &SecretString) {
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        *rejected = Some(token.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_due_early_or_at_half_its_lifetime() {
        const MINUTE: u64 = 60_000;
        assert_eq!(renewal_due_ms(0, 60 * MINUTE), 55 * MINUTE);
        assert_eq!(renewal_due_ms(10 * MINUTE, 70 * MINUTE), 65 * MINUTE);
        assert_eq!(renewal_due_ms(10 * MINUTE, 14 * MINUTE), 12 * MINUTE);
        // Issued on a clock that is a day ahead.
        let issued = 24 * 60 * MINUTE;
        assert_eq!(renewal_due_ms(issued, 60 * MINUTE), issued + 30 * MINUTE);
    }
}
