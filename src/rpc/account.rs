//! `login/*` and `account/status`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use jsonrpsee::types::ErrorObjectOwned;

use super::error::{INVALID_PARAMS, internal};
use super::protocol::*;
use agent::run::{Backend, dashboard};
use cursor_client::ClientOptions;
use cursor_client::account::{BrowserLogin, Dashboard, KeySource, SubscriptionPlan, find_key};

/// How many logins may be open.
const MAX_LOGINS: usize = 8;

/// Logins that were started and have not ended.
#[derive(Default)]
pub(super) struct Logins(Mutex<VecDeque<Arc<StartedLogin>>>);

struct StartedLogin {
    login: BrowserLogin,
    dashboard: Dashboard,
}

impl Logins {
    /// Starts a login.
    pub(super) fn start(
        &self,
        options: &ClientOptions,
    ) -> Result<LoginStartResult, ErrorObjectOwned> {
        let (dashboard, endpoints) =
            dashboard(options).map_err(|error| internal(&error.to_string()))?;
        let login =
            BrowserLogin::begin(&endpoints).map_err(|error| internal(&error.to_string()))?;
        let result = LoginStartResult {
            login_id: login.id().to_string(),
            url: login.page().into(),
        };
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if started.len() == MAX_LOGINS {
            started.pop_front();
        }
        started.push_back(Arc::new(StartedLogin { login, dashboard }));
        Ok(result)
    }

    /// Waits for the end of a login and stores its key. May be called again after it was cancelled.
    pub(super) async fn wait(
        &self,
        params: &LoginWaitParams,
        options: &ClientOptions,
    ) -> Result<LoginWaitResult, ErrorObjectOwned> {
        let known =
            |started: &&Arc<StartedLogin>| started.login.id().to_string() == params.login_id;
        let started = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .find(known)
            .cloned();
        let Some(started) = started else {
            let problem = "loginId: no such login; begin one with login/start";
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
        };
        let done = started.login.wait(&started.dashboard).await;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| !Arc::ptr_eq(other, &started));
        let login = done.map_err(|error| internal(&error.to_string()))?;
        login
            .save(options)
            .map_err(|error| internal(&error.to_string()))?;
        tracing::debug!("login.done");
        Ok(LoginWaitResult {
            email: login.email,
            expires_at: login.expires_ms,
        })
    }
}

/// Returns who the user is. A missing or refused key is part of the result, not an error.
pub(super) async fn status(
    params: &AccountStatusParams,
    options: &ClientOptions,
    backend: impl FnOnce() -> Result<Backend, String>,
) -> AccountStatus {
    let key_source = match find_key(params.api_key.as_deref(), options) {
        Ok((_, source)) => Some(source.into()),
        // The code below reports it when it uses the key.
        Err(_) => None,
    };
    let status = AccountStatus {
        key_source,
        ..AccountStatus::default()
    };
    let backend = match backend() {
        Ok(backend) => backend,
        Err(problem) => {
            return AccountStatus {
                problem: Some(problem),
                ..status
            };
        }
    };
    let dashboard = backend.dashboard();
    let (me, plan) = tokio::join!(
        dashboard.user(&backend.account),
        dashboard.plan(&backend.account)
    );
    let problem = me.as_ref().err().or(plan.as_ref().err());
    let problem = problem.map(ToString::to_string);
    let me = me.unwrap_or_default();
    AccountStatus {
        email: me.email,
        name: me.name,
        plan: plan.ok().map(AccountPlan::from),
        problem,
        ..status
    }
}

impl From<KeySource> for KeyOrigin {
    fn from(source: KeySource) -> Self {
        match source {
            KeySource::Host => Self::Host,
            KeySource::Environment => Self::Environment,
            KeySource::Login => Self::Login,
        }
    }
}

impl From<SubscriptionPlan> for AccountPlan {
    fn from(plan: SubscriptionPlan) -> Self {
        Self {
            name: plan.name,
            used_cents: plan.used_cents,
            limit_cents: plan.limit_cents,
            percent_used: plan.percent_used,
            period_ends_at: plan.period_ends_ms,
            message: plan.message,
        }
    }
}
