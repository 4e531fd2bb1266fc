//! The access token: cached, and renewed before it expires.
//!
//! One task owns the token and serves all callers, so that concurrent callers share one exchange.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::claims::expiry;
use super::credential::RENEW_EARLY;
use super::exchange::{ExchangeError, TokenExchange};
use crate::error::WireError;
use crate::unary::CallError;
use cursor_proto::connect_code::Code;
use foundation::VariantName;

/// Assumed for a token without a readable expiry, and for one that seems to have expired when it was
/// issued, because then this machine's clock is ahead of Cursor's.
pub(super) const ASSUMED_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// After a failed renewal the old token stays in use and the next attempt waits this long.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// An access token and when it was issued.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    /// The token.
    pub token: SecretString,
    /// When it was issued.
    pub at: Instant,
}

/// A handle to the task that owns the token.
#[derive(Debug, Clone)]
pub struct Account {
    requests: mpsc::Sender<TokenRequest>,
}

enum TokenRequest {
    Get(oneshot::Sender<Result<IssuedToken, ExchangeError>>),
    Reject(SecretString),
}

/// Why an authorized call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthorizedError {
    /// There is no token.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Account {
    /// Starts the task. It ends when the last handle is dropped.
    pub fn start(exchange: impl TokenExchange) -> Self {
        let (requests, receiver) = mpsc::channel(64);
        let task = TokenTask {
            exchange: Box::new(exchange),
            cached: None,
            waiting: Vec::new(),
            retry_after: None,
        };
        // Not in the caller's span, because the task outlives the first caller.
        tokio::spawn(task.run(receiver));
        Self { requests }
    }

    /// Returns a token that is currently valid.
    pub async fn token(&self) -> Result<IssuedToken, ExchangeError> {
        let (reply, response) = oneshot::channel();
        // The task ends only when the runtime shuts down.
        if self.requests.send(TokenRequest::Get(reply)).await.is_err() {
            return Err(ExchangeError::NoToken);
        }
        response.await.unwrap_or(Err(ExchangeError::NoToken))
    }

    /// Discards `token` after the server rejected it; the next request exchanges again.
    pub async fn reject(&self, token: &SecretString) {
        let _ = self
            .requests
            .send(TokenRequest::Reject(token.clone()))
            .await;
    }

    /// Makes a call with a token. If the server responds with `unauthenticated`, the call is
    /// retried once with a new token.
    pub async fn authorized<Response, Called>(
        &self,
        call: impl Fn(SecretString) -> Called,
    ) -> Result<Response, AuthorizedError>
    where
        Called: Future<Output = Result<Response, CallError>>,
    {
        let issued = self.token().await?;
        match call(issued.token.clone()).await {
            Err(CallError::Wire(WireError::Remote(remote)))
                if remote.code == Code::Unauthenticated =>
            {
                self.reject(&issued.token).await;
                Ok(call(self.token().await?.token).await?)
            }
            result => Ok(result?),
        }
    }
}

type ExchangeFuture = Pin<Box<dyn Future<Output = Result<SecretString, ExchangeError>> + Send>>;

struct TokenTask {
    exchange: Box<dyn TokenExchange>,
    cached: Option<CachedToken>,
    waiting: Vec<oneshot::Sender<Result<IssuedToken, ExchangeError>>>,
    retry_after: Option<Instant>,
}

struct CachedToken {
    issued: IssuedToken,
    lifetime: TokenLifetime,
}

/// When a token should be renewed and when it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TokenLifetime {
    renew: Instant,
    end: Instant,
    wall_end: SystemTime,
}

/// How to serve a request for a token.
#[derive(Debug, PartialEq, Eq)]
enum TokenAction {
    Use,
    UseAndRenew,
    Exchange,
}

fn action_for(
    lifetime: Option<TokenLifetime>,
    retry_after: Option<Instant>,
    now: Instant,
) -> TokenAction {
    match lifetime {
        Some(lifetime) if now < lifetime.renew => TokenAction::Use,
        Some(lifetime) if now < lifetime.end && retry_after.is_some_and(|at| now < at) => {
            TokenAction::Use
        }
        Some(lifetime) if now < lifetime.end => TokenAction::UseAndRenew,
        _ => TokenAction::Exchange,
    }
}

impl TokenLifetime {
    fn parse(token: &str, now: Instant, wall: SystemTime) -> Self {
        let left = expiry(token).and_then(|expiry| expiry.duration_since(wall).ok());
        let left = left
            .filter(|left| !left.is_zero())
            .unwrap_or(ASSUMED_LIFETIME);
        // Renewed five minutes early, or at half the lifetime if that is later.
        let renew_after = left.saturating_sub(RENEW_EARLY).max(left / 2);
        Self {
            renew: now + renew_after,
            end: now + left,
            wall_end: wall + left,
        }
    }
}

impl TokenTask {
    async fn run(mut self, mut requests: mpsc::Receiver<TokenRequest>) {
        let mut exchanging: Option<ExchangeFuture> = None;
        loop {
            let exchanged = async {
                match &mut exchanging {
                    Some(exchange) => exchange.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                request = requests.recv() => match request {
                    Some(TokenRequest::Get(reply)) => {
                        if self.serve(reply) == TokenAction::Use {
                            continue;
                        }
                        if exchanging.is_none() {
                            exchanging = Some(self.exchange.exchange());
                        }
                    }
                    Some(TokenRequest::Reject(token)) => self.reject(&token),
                    None => return,
                },
                result = exchanged => {
                    exchanging = None;
                    self.exchanged(result);
                }
            }
        }
    }

    fn serve(&mut self, reply: oneshot::Sender<Result<IssuedToken, ExchangeError>>) -> TokenAction {
        let lifetime = self.cached.as_ref().map(|cached| cached.lifetime);
        // The monotonic clock stops while the machine is suspended, but tokens still expire.
        let lifetime = lifetime.filter(|lifetime| SystemTime::now() < lifetime.wall_end);
        let action = action_for(lifetime, self.retry_after, Instant::now());
        match (&action, &self.cached) {
            (TokenAction::Use | TokenAction::UseAndRenew, Some(cached)) => {
                let _ = reply.send(Ok(cached.issued.clone()));
            }
            _ => self.waiting.push(reply),
        }
        action
    }

    /// Drops a token, unless it has already been replaced.
    fn reject(&mut self, token: &SecretString) {
        tracing::debug!("token.rejected");
        self.exchange.rejected(token);
        self.cached
            .take_if(|cached| cached.issued.token.expose_secret() == token.expose_secret());
    }

    fn exchanged(&mut self, result: Result<SecretString, ExchangeError>) {
        let now = Instant::now();
        let waiting = self.waiting.len();
        let answer = match result {
            Ok(token) => {
                foundation::secrets().learn(&token);
                let lifetime = TokenLifetime::parse(token.expose_secret(), now, SystemTime::now());
                let life_s = (lifetime.end - now).as_secs();
                match self.cached {
                    None => tracing::debug!(life_s, waiting, "token.exchanged"),
                    Some(_) => tracing::debug!(life_s, waiting, "token.refreshed"),
                }
                let issued = IssuedToken { token, at: now };
                self.retry_after = None;
                self.cached = Some(CachedToken {
                    issued: issued.clone(),
                    lifetime,
                });
                Ok(issued)
            }
            Err(error) => {
                let passing = error.is_transient();
                tracing::debug!(kind = %VariantName(&error), passing, waiting, "token.refused");
                self.retry_after = Some(now + RETRY_DELAY);
                if !error.is_transient() {
                    self.cached = None;
                }
                Err(error)
            }
        };
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests;
