use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::time::UNIX_EPOCH;
use tokio::sync::Semaphore;

use super::*;
use crate::error::TransportError;

/// Issues numbered tokens; `gate` lets a test delay an exchange.
#[derive(Clone)]
struct FakeExchange {
    calls: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    life_s: i64,
    fails_from: u32,
}

fn fake(life_s: i64) -> FakeExchange {
    FakeExchange {
        calls: Arc::default(),
        gate: Arc::new(Semaphore::new(1000)),
        life_s,
        fails_from: u32::MAX,
    }
}

fn jwt(life_s: i64, number: u32) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    let payload = serde_json::json!({"exp": now + life_s, "n": number}).to_string();
    format!("h.{}.s{number}", URL_SAFE_NO_PAD.encode(payload))
}

impl TokenExchange for FakeExchange {
    fn exchange(&self) -> ExchangeFuture {
        let fake = self.clone();
        Box::pin(async move {
            fake.gate.acquire().await.unwrap().forget();
            let number = fake.calls.fetch_add(1, Ordering::SeqCst) + 1;
            if number >= fake.fails_from {
                let error = WireError::from(TransportError::Lost("down".into()));
                return Err(ExchangeError::Transient(error.into()));
            }
            Ok(jwt(fake.life_s, number).into())
        })
    }
}

async fn number(account: &Account) -> String {
    let issued = account.token().await.unwrap();
    issued
        .token
        .expose_secret()
        .rsplit('.')
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_one_exchange() {
    let fake = FakeExchange {
        gate: Arc::new(Semaphore::new(0)),
        ..fake(3600)
    };
    let account = Account::start(fake.clone());
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let account = account.clone();
            tokio::spawn(async move { number(&account).await })
        })
        .collect();
    tokio::task::yield_now().await;
    fake.gate.add_permits(10);
    for caller in callers {
        assert_eq!(caller.await.unwrap(), "s1");
    }
    assert_eq!(fake.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn early_renewal_does_not_block_callers() {
    let fake = fake(3600);
    let account = Account::start(fake.clone());
    assert_eq!(number(&account).await, "s1");
    tokio::time::advance(Duration::from_secs(54 * 60)).await;
    assert_eq!(number(&account).await, "s1");
    assert_eq!(fake.calls.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_secs(2 * 60)).await;
    assert_eq!(
        number(&account).await,
        "s1",
        "the old token is used during the renewal"
    );
    while fake.calls.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    assert_eq!(number(&account).await, "s2");
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_renewal_the_old_token_is_used_until_it_expires() {
    let fake = FakeExchange {
        fails_from: 2,
        ..fake(3600)
    };
    let account = Account::start(fake.clone());
    assert_eq!(number(&account).await, "s1");
    tokio::time::advance(Duration::from_secs(56 * 60)).await;
    assert_eq!(number(&account).await, "s1");
    while fake.calls.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(number(&account).await, "s1");
    assert_eq!(
        fake.calls.load(Ordering::SeqCst),
        2,
        "no second attempt within 30 s"
    );
    tokio::time::advance(Duration::from_secs(5 * 60)).await;
    assert!(account.token().await.unwrap_err().is_transient());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_replaced_once() {
    let fake = fake(3600);
    let account = Account::start(fake.clone());
    let first = account.token().await.unwrap().token;
    account.reject(&first).await;
    assert_eq!(number(&account).await, "s2");
    account.reject(&first).await;
    assert_eq!(
        number(&account).await,
        "s2",
        "a late rejection does not discard the new token"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unauthenticated_call_is_retried_once() {
    let account = Account::start(fake(3600));
    let calls = AtomicU32::new(0);
    let refused = || {
        let mut error = crate::connect_error::RemoteError::from_status(401);
        error.code = Code::Unauthenticated;
        Err::<(), _>(CallError::from(error))
    };
    let result = account
        .authorized(|_| {
            calls.fetch_add(1, Ordering::SeqCst);
            async { refused() }
        })
        .await;
    assert!(result.is_err());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn short_lived_tokens_are_renewed_at_half_their_lifetime() {
    let (now, wall) = (Instant::now(), SystemTime::now());
    let lifetime = |seconds| {
        let lifetime = TokenLifetime::parse(&jwt(seconds, 1), now, wall);
        (
            (lifetime.renew - now).as_secs_f64().round(),
            (lifetime.end - now).as_secs_f64().round(),
        )
    };
    assert!((lifetime(3600).0 - 3300.0).abs() <= 1.0);
    assert!((lifetime(360).0 - 180.0).abs() <= 1.0);
    let opaque = TokenLifetime::parse("opaque", now, wall);
    assert_eq!(opaque.end - now, ASSUMED_LIFETIME);
    // Cursor issues no expired tokens, so this clock is ahead.
    let ahead = TokenLifetime::parse(&jwt(-86_400, 1), now, wall);
    assert_eq!(ahead.end - now, ASSUMED_LIFETIME);
}

#[test]
fn tokens_that_are_not_jwts_have_no_expiry() {
    for token in [
        "",
        "a.b.c",
        "..",
        "a.e30.c",
        "a.eyJleHAiOiJ4In0.c",
        "a.eyJleHAiOi0xfQ.c",
    ] {
        assert_eq!(expiry(token), None, "{token}");
    }
}

#[test]
fn debug_output_contains_no_token() {
    let issued = IssuedToken {
        token: "very-secret".into(),
        at: Instant::now(),
    };
    assert!(!format!("{issued:?}").contains("very-secret"));
}
