use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Semaphore;

use super::*;
use crate::wire::error::TransportError;

/// Hands out numbered tokens; `gate` lets a test hold an exchange back.
#[derive(Clone)]
struct Fake {
    calls: Arc<AtomicU32>,
    gate: Arc<Semaphore>,
    life_s: i64,
    fails_from: u32,
}

fn fake(life_s: i64) -> Fake {
    Fake {
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

impl Exchange for Fake {
    fn exchange(&self) -> Exchanging {
        let fake = self.clone();
        Box::pin(async move {
            fake.gate.acquire().await.unwrap().forget();
            let number = fake.calls.fetch_add(1, Ordering::SeqCst) + 1;
            if number >= fake.fails_from {
                let error = WireError::from(TransportError::Lost("down".into()));
                return Err(ExchangeError::Passing(error.into()));
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
async fn many_askers_make_one_exchange() {
    let fake = Fake {
        gate: Arc::new(Semaphore::new(0)),
        ..fake(3600)
    };
    let account = Account::start(fake.clone());
    let askers: Vec<_> = (0..50)
        .map(|_| {
            let account = account.clone();
            tokio::spawn(async move { number(&account).await })
        })
        .collect();
    tokio::task::yield_now().await;
    fake.gate.add_permits(10);
    for asker in askers {
        assert_eq!(asker.await.unwrap(), "s1");
    }
    assert_eq!(fake.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn renews_early_without_making_anybody_wait() {
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
        "the old one serves while the new one comes"
    );
    while fake.calls.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    assert_eq!(number(&account).await, "s2");
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_leaves_the_old_token_to_its_end() {
    let fake = Fake {
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
        "no hammering within 30 s"
    );
    tokio::time::advance(Duration::from_secs(5 * 60)).await;
    assert!(account.token().await.unwrap_err().is_passing());
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
        "an old rejection does not hit the new token"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unauthenticated_call_is_tried_once_more() {
    let account = Account::start(fake(3600));
    let calls = AtomicU32::new(0);
    let refused = || {
        let mut error = crate::wire::remote::RemoteError::from_status(401);
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
fn short_lived_tokens_are_renewed_at_half_their_life() {
    let (now, wall) = (Instant::now(), SystemTime::now());
    let life = |seconds| {
        let life = Life::of(&jwt(seconds, 1), now, wall);
        (
            (life.renew - now).as_secs_f64().round(),
            (life.end - now).as_secs_f64().round(),
        )
    };
    assert!((life(3600).0 - 3300.0).abs() <= 1.0);
    assert!((life(360).0 - 180.0).abs() <= 1.0);
    assert_eq!(life(-5), (0.0, 0.0));
    let opaque = Life::of("opaque", now, wall);
    assert_eq!(opaque.end - now, ASSUMED_LIFE);
}

#[test]
fn nothing_that_is_no_jwt_makes_expiry_fail() {
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
fn debug_shows_no_token() {
    let issued = Issued {
        token: "very-secret".into(),
        at: Instant::now(),
    };
    assert!(!format!("{issued:?}").contains("very-secret"));
}
