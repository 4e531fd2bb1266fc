//! `login/*` and `account/status`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use jsonrpsee::types::ErrorObjectOwned;
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use super::error::{CANCELLED, INVALID_PARAMS, internal};
use super::protocol::*;
use agent::run::{Backend, dashboard};
use cursor_client::ClientOptions;
use cursor_client::account::{
    BrowserLogin, Credential, CredentialSource, Dashboard, LoginExchange, LoginTokens,
    SubscriptionPlan, find_credential,
};
use cursor_client::endpoint::Endpoints;
use cursor_client::http_clients::Http;

/// How many logins may be open.
const MAX_LOGINS: usize = 8;
const INSTRUCTIONS: &str =
    "Sign in to Cursor on this page. The browser may run on another machine.";

/// Logins that were started and have not ended.
#[derive(Default)]
pub(super) struct Logins(Mutex<VecDeque<Arc<StartedLogin>>>);

struct StartedLogin {
    login: BrowserLogin,
    dashboard: Dashboard,
    cancelled: CancellationToken,
}

impl Logins {
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
            instructions: INSTRUCTIONS.into(),
        };
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if started.len() == MAX_LOGINS {
            started.pop_front();
        }
        started.push_back(Arc::new(StartedLogin {
            login,
            dashboard,
            cancelled: CancellationToken::new(),
        }));
        Ok(result)
    }

    fn find(&self, login_id: &str) -> Option<Arc<StartedLogin>> {
        let started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = started
            .iter()
            .find(|started| started.login.id().to_string() == login_id);
        found.cloned()
    }

    /// Ends a login. Returns whether there was one.
    pub(super) fn cancel(&self, params: &LoginCancelParams) -> bool {
        let Some(started) = self.find(&params.login_id) else {
            return false;
        };
        started.cancelled.cancel();
        self.forget(&started);
        true
    }

    fn forget(&self, started: &Arc<StartedLogin>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| !Arc::ptr_eq(other, started));
    }

    /// Waits for the end of a login and stores it, unless the host does. May be called again after
    /// the request was cancelled.
    pub(super) async fn wait(
        &self,
        params: &LoginWaitParams,
        options: &ClientOptions,
    ) -> Result<LoginWaitResult, ErrorObjectOwned> {
        let Some(started) = self.find(&params.login_id) else {
            let problem = "loginId: no such login; begin one with login/start";
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
        };
        let done = tokio::select! {
            done = started.login.wait(&started.dashboard) => done,
            () = started.cancelled.cancelled() => {
                // pi displays no error for this text.
                let text = "Login cancelled";
                return Err(ErrorObjectOwned::owned(CANCELLED, text, None::<()>));
            }
        };
        self.forget(&started);
        let login = done.map_err(|error| internal(&error.to_string()))?;
        if !params.return_tokens {
            login
                .save(options)
                .map_err(|error| internal(&error.to_string()))?;
        }
        tracing::debug!("login.done");
        let tokens = match &login.credential {
            Credential::Login(tokens) => HostLogin::of(tokens),
            // A login has tokens.
            Credential::Key(_) => return Err(internal("the login has no tokens")),
        };
        Ok(LoginWaitResult {
            email: login.email,
            expires_at: tokens.expires,
            tokens: params.return_tokens.then_some(tokens),
        })
    }
}

impl HostLogin {
    fn of(tokens: &LoginTokens) -> Self {
        let refresh = tokens.refresh.as_ref().map(|token| token.expose_secret());
        Self {
            access: tokens.for_host(),
            refresh: refresh.unwrap_or_default().to_owned(),
            expires: tokens.renew_at_ms(SystemTime::now()),
        }
    }
}

/// Renews a login that the host stores.
pub(super) async fn refresh(
    params: &LoginRefreshParams,
    options: &ClientOptions,
) -> Result<HostLogin, ErrorObjectOwned> {
    let credential = Credential::parse(&params.access);
    let mut tokens = match credential.map_err(|error| internal(&error.to_string()))? {
        Credential::Login(tokens) => tokens,
        Credential::Key(_) => {
            let text = "access: not a login";
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, text, None::<()>));
        }
    };
    tokens.refresh = Some(params.refresh.as_str())
        .filter(|token| !token.is_empty())
        .map(Into::into);
    tokens.learn();
    let endpoints = Endpoints::resolve(&options.endpoints);
    let endpoints = endpoints.map_err(|error| internal(&error.to_string()))?;
    let http = Arc::new(Http::new(options.trust.clone()));
    let source = CredentialSource::Host;
    let login = LoginExchange::new(http, endpoints.backend, tokens, source, options);
    let renewed = login.tokens().await;
    let renewed = renewed.map_err(|error| internal(&error.to_string()))?;
    Ok(HostLogin::of(&renewed))
}

/// Returns who the user is. A missing or refused key is part of the result, not an error.
pub(super) async fn status(
    params: &AccountStatusParams,
    options: &ClientOptions,
    backend: impl FnOnce() -> Result<Backend, String>,
) -> AccountStatus {
    let key_source = match find_credential(params.api_key.as_deref(), options) {
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

impl From<CredentialSource> for KeyOrigin {
    fn from(source: CredentialSource) -> Self {
        match source {
            CredentialSource::Host => Self::Host,
            CredentialSource::Environment => Self::Environment,
            CredentialSource::AccessToken => Self::AccessToken,
            CredentialSource::Login => Self::Login,
            CredentialSource::CursorCli => Self::CursorCli,
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
            auto_percent_used: plan.auto_percent_used,
            named_percent_used: plan.named_percent_used,
            on_demand_cents: plan.on_demand_cents,
            on_demand_limit_cents: plan.on_demand_limit_cents,
            period_ends_at: plan.period_ends_ms,
            message: plan.message,
        }
    }
}
