//! What Cursor says about the person: who they are, their plan, what they have used of it.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use secrecy::SecretString;

use super::token::{Account, AuthorizedError};
use crate::wire::endpoint::BaseUrl;
use crate::wire::headers::{HttpVersion, Identity};
use crate::wire::http::Http;
use crate::wire::proto::aiserver::v1::{
    CreateUserApiKeyRequest, CreateUserApiKeyResponse, GetCurrentPeriodUsageRequest,
    GetCurrentPeriodUsageResponse, GetMeRequest, GetMeResponse, GetPlanInfoRequest,
    GetPlanInfoResponse,
};
use crate::wire::unary::{Call, CallError};

const SERVICE: &str = "/aiserver.v1.DashboardService/";
const DEADLINE: Duration = Duration::from_secs(15);

/// The account's own service.
#[derive(Debug, Clone)]
pub struct Dashboard {
    http: Arc<Http>,
    backend: BaseUrl,
    identity: Identity,
}

/// A person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Me {
    /// Their address.
    pub email: Option<String>,
    /// Their name.
    pub name: Option<String>,
}

/// What they pay for and what is left of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Its name.
    pub name: Option<String>,
    /// Cents used in this period.
    pub used_cents: Option<i32>,
    /// Cents that are included.
    pub limit_cents: Option<i32>,
    /// The share that is used, of a hundred.
    pub percent_used: Option<f64>,
    /// When the period ends, in milliseconds since 1970.
    pub period_ends_ms: Option<i64>,
    /// Cursor's own words about it.
    pub message: Option<String>,
}

impl Dashboard {
    /// The service at `backend`.
    pub fn new(http: Arc<Http>, backend: BaseUrl, identity: Identity) -> Self {
        Self {
            http,
            backend,
            identity,
        }
    }

    /// Where it is.
    pub fn backend(&self) -> &BaseUrl {
        &self.backend
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    /// Who the account belongs to.
    pub async fn me(&self, account: &Account) -> Result<Me, AuthorizedError> {
        account
            .authorized(async |token| self.me_with(&token).await)
            .await
    }

    pub(super) async fn me_with(&self, token: &SecretString) -> Result<Me, CallError> {
        let me: GetMeResponse = self.call("GetMe", token, &GetMeRequest::default()).await?;
        let names = [me.first_name, me.last_name];
        let name: Vec<String> = names.into_iter().flatten().collect();
        Ok(Me {
            email: me.email.filter(|email| !email.is_empty()),
            name: Some(name.join(" ").trim().to_owned()).filter(|name| !name.is_empty()),
        })
    }

    /// The account's plan. What of it Cursor does not tell is left out.
    pub async fn plan(&self, account: &Account) -> Result<Plan, AuthorizedError> {
        let info = account
            .authorized(async |token| {
                let request = GetPlanInfoRequest::default();
                let answer = self.call("GetPlanInfo", &token, &request).await;
                answer.map(|answer: GetPlanInfoResponse| answer.plan_info)
            })
            .await?;
        let usage: GetCurrentPeriodUsageResponse = account
            .authorized(async |token| {
                let request = GetCurrentPeriodUsageRequest::default();
                self.call("GetCurrentPeriodUsage", &token, &request).await
            })
            .await?;
        let used = usage.plan_usage;
        Ok(Plan {
            name: info
                .map(|info| info.plan_name)
                .filter(|name| !name.is_empty()),
            used_cents: used.as_ref().map(|used| used.total_spend),
            limit_cents: used
                .as_ref()
                .map(|used| used.limit)
                .filter(|limit| *limit > 0),
            percent_used: used.and_then(|used| used.total_percent_used),
            period_ends_ms: Some(usage.billing_cycle_end).filter(|end| *end > 0),
            message: Some(usage.display_message).filter(|message| !message.is_empty()),
        })
    }

    /// Makes an API key for the person who just signed in.
    pub(super) async fn create_key(
        &self,
        token: &SecretString,
        name: String,
        expires: Duration,
    ) -> Result<String, CallError> {
        let request = CreateUserApiKeyRequest {
            name,
            scopes: Vec::new(),
            expires_at: i64::try_from(expires.as_millis()).ok(),
        };
        let made: CreateUserApiKeyResponse = self.call("CreateUserApiKey", token, &request).await?;
        Ok(made.api_key)
    }

    async fn call<Answer: Message + Default>(
        &self,
        method: &str,
        token: &SecretString,
        request: &impl Message,
    ) -> Result<Answer, CallError> {
        let path = format!("{SERVICE}{method}");
        let call = Call {
            base: &self.backend,
            path: &path,
            headers: self.identity.unary(token),
            version: HttpVersion::Http1,
            deadline: DEADLINE,
        };
        self.http.call(call, request).await
    }
}
