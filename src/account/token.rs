//! The access token: cached, refreshed early, exchanged once however many ask.
//!
//! One task owns the token; everybody else asks it.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::exchange::{Exchange, ExchangeError};
use crate::diag::Variant;
use crate::wire::code::Code;
use crate::wire::error::WireError;
use crate::wire::unary::CallError;

/// For a token that does not say when it ends.
const ASSUMED_LIFE: Duration = Duration::from_secs(30 * 60);
/// A token is renewed this long before it ends, or at half its life if it is short.
const EARLY: Duration = Duration::from_secs(5 * 60);
/// After a failed refresh the old token serves on; the next try waits this long.
const REFRESH_PAUSE: Duration = Duration::from_secs(30);

/// A token and when it was handed out.
#[derive(Debug, Clone)]
pub struct Issued {
    /// The token.
    pub token: SecretString,
    /// When it was exchanged.
    pub at: Instant,
}

/// A handle to the task that owns the token.
#[derive(Debug, Clone)]
pub struct Account {
    asks: mpsc::Sender<Ask>,
}

enum Ask {
    Token(oneshot::Sender<Result<Issued, ExchangeError>>),
    Reject(SecretString),
}

/// A call made with a token that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthorizedError {
    /// No token.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The call.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl Account {
    /// Starts the owner. It ends when the last handle is dropped.
    pub fn start(exchange: impl Exchange) -> Self {
        let (asks, inbox) = mpsc::channel(64);
        let owner = Owner {
            exchange: Box::new(exchange),
            cached: None,
            waiting: Vec::new(),
            pause_until: None,
        };
        // Not in anybody's span: the token outlives whoever asked first.
        tokio::spawn(owner.run(inbox));
        Self { asks }
    }

    /// A token that is good now.
    pub async fn token(&self) -> Result<Issued, ExchangeError> {
        let (reply, answer) = oneshot::channel();
        // Without an owner (it only goes when the runtime does) there is nothing to wait for.
        if self.asks.send(Ask::Token(reply)).await.is_err() {
            return Err(ExchangeError::NoToken);
        }
        answer.await.unwrap_or(Err(ExchangeError::NoToken))
    }

    /// Says that the server did not take `token`; the next ask exchanges anew.
    pub async fn reject(&self, token: &SecretString) {
        let _ = self.asks.send(Ask::Reject(token.clone())).await;
    }

    /// Makes a call with a token; an `unauthenticated` answer gets one more try with a new one.
    pub async fn authorized<Answer, Called>(
        &self,
        call: impl Fn(SecretString) -> Called,
    ) -> Result<Answer, AuthorizedError>
    where
        Called: Future<Output = Result<Answer, CallError>>,
    {
        let issued = self.token().await?;
        match call(issued.token.clone()).await {
            Err(CallError::Wire(WireError::Remote(remote)))
                if remote.code == Code::Unauthenticated =>
            {
                self.reject(&issued.token).await;
                Ok(call(self.token().await?.token).await?)
            }
            answer => Ok(answer?),
        }
    }
}

type Exchanging = Pin<Box<dyn Future<Output = Result<SecretString, ExchangeError>> + Send>>;

struct Owner {
    exchange: Box<dyn Exchange>,
    cached: Option<Cached>,
    waiting: Vec<oneshot::Sender<Result<Issued, ExchangeError>>>,
    pause_until: Option<Instant>,
}

struct Cached {
    issued: Issued,
    life: Life,
}

/// When a token should be renewed and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Life {
    renew: Instant,
    end: Instant,
    wall_end: SystemTime,
}

/// What to do for somebody who asks now.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Use,
    UseAndRenew,
    Exchange,
}

fn plan(life: Option<Life>, pause_until: Option<Instant>, now: Instant) -> Plan {
    match life {
        Some(life) if now < life.renew => Plan::Use,
        Some(life) if now < life.end && pause_until.is_some_and(|pause| now < pause) => Plan::Use,
        Some(life) if now < life.end => Plan::UseAndRenew,
        _ => Plan::Exchange,
    }
}

impl Life {
    fn of(token: &str, now: Instant, wall: SystemTime) -> Self {
        let left = expiry(token).map_or(ASSUMED_LIFE, |expiry| {
            expiry.duration_since(wall).unwrap_or_default()
        });
        let renew_after = left.saturating_sub(EARLY).max(left / 2);
        Self {
            renew: now + renew_after,
            end: now + left,
            wall_end: wall + left,
        }
    }
}

/// The `exp` of a JWT; nothing of it is trusted beyond that.
fn expiry(token: &str) -> Option<SystemTime> {
    let payload = token.split('.').nth(1)?.trim_end_matches('=');
    let json: serde_json::Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let seconds = json.get("exp")?.as_f64()?;
    UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::Receiver<Ask>) {
        let mut exchanging: Option<Exchanging> = None;
        loop {
            let exchanged = async {
                match &mut exchanging {
                    Some(exchange) => exchange.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ask = inbox.recv() => match ask {
                    Some(Ask::Token(reply)) => {
                        if self.ask(reply) == Plan::Use {
                            continue;
                        }
                        if exchanging.is_none() {
                            exchanging = Some(self.exchange.exchange());
                        }
                    }
                    Some(Ask::Reject(token)) => self.reject(&token),
                    None => return,
                },
                result = exchanged => {
                    exchanging = None;
                    self.exchanged(result);
                }
            }
        }
    }

    fn ask(&mut self, reply: oneshot::Sender<Result<Issued, ExchangeError>>) -> Plan {
        let life = self.cached.as_ref().map(|cached| cached.life);
        // The monotonic clock stands still while the machine sleeps; tokens do not.
        let life = life.filter(|life| SystemTime::now() < life.wall_end);
        let plan = plan(life, self.pause_until, Instant::now());
        match (&plan, &self.cached) {
            (Plan::Use | Plan::UseAndRenew, Some(cached)) => {
                let _ = reply.send(Ok(cached.issued.clone()));
            }
            _ => self.waiting.push(reply),
        }
        plan
    }

    /// Forgets a token, unless a newer one has taken its place already.
    fn reject(&mut self, token: &SecretString) {
        tracing::debug!("token.rejected");
        self.cached
            .take_if(|cached| cached.issued.token.expose_secret() == token.expose_secret());
    }

    fn exchanged(&mut self, result: Result<SecretString, ExchangeError>) {
        let now = Instant::now();
        let waiting = self.waiting.len();
        let answer = match result {
            Ok(token) => {
                crate::diag::secrets().learn(&token);
                let life = Life::of(token.expose_secret(), now, SystemTime::now());
                let life_s = (life.end - now).as_secs();
                match self.cached {
                    None => tracing::debug!(life_s, waiting, "token.exchanged"),
                    Some(_) => tracing::debug!(life_s, waiting, "token.refreshed"),
                }
                let issued = Issued { token, at: now };
                self.pause_until = None;
                self.cached = Some(Cached {
                    issued: issued.clone(),
                    life,
                });
                Ok(issued)
            }
            Err(error) => {
                let passing = error.is_passing();
                tracing::debug!(kind = %Variant(&error), passing, waiting, "token.refused");
                self.pause_until = Some(now + REFRESH_PAUSE);
                if !error.is_passing() {
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
