//! Fetches Cursor's models: with an API key over REST, with a login over two RPCs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use prost::Message as _;
use secrecy::SecretString;

use super::cache::AccountFingerprint;
use super::model::{CatalogModel, ModelVariant, Parameter, ParameterChoice, ParameterValue};
use cursor_client::account::{Account, ApiKey, AuthorizedError};
use cursor_client::endpoint::{BaseUrl, Endpoints};
use cursor_client::error::{TransportError, WireError};
use cursor_client::headers::{HttpVersion, Identity};
use cursor_client::http_clients::Http;
use cursor_client::unary::{Call, CallError};
use cursor_proto::agent::v1::{GetUsableModelsRequest, GetUsableModelsResponse, ModelDetails};
use cursor_proto::aiserver::v1::AvailableModelsRequest;
use cursor_proto::available_models::{self, AvailableModel};
use cursor_proto::connect_code::Code;

const REST_PATH: &str = "/v1/models";
const USABLE_PATH: &str = "/agent.v1.AgentService/GetUsableModels";
const AVAILABLE_PATH: &str = "/aiserver.v1.AiService/AvailableModels";
/// Time limit of each request.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// Fetches the models of one account.
#[derive(Debug, Clone)]
pub struct CatalogClient {
    /// The HTTP clients.
    pub http: Arc<Http>,
    /// The servers.
    pub endpoints: Endpoints,
    /// The client identity sent in headers.
    pub identity: Identity,
    /// The credential to authenticate with.
    pub credential: CatalogCredential,
}

/// How to authenticate.
#[derive(Debug, Clone)]
pub enum CatalogCredential {
    /// An API key.
    Key {
        /// The key.
        key: ApiKey,
        /// The account that issues tokens for the key.
        account: Account,
    },
    /// A login, with tokens only.
    Login {
        /// The account.
        account: Account,
        /// Distinguishes the account from others, for example a user id.
        name: String,
    },
}

/// Why the models could not be fetched.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DiscoverError {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The call failed, or there is no token for it.
    #[error(transparent)]
    Authorized(#[from] AuthorizedError),
    /// Cursor rejected the key.
    #[error("Cursor did not accept the API key ({0})")]
    Rejected(String),
    /// The response has no models.
    #[error("Cursor listed no models")]
    Empty,
    /// There was no response in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The request is still running and the caller did not want to wait.
    #[error("no answer yet")]
    Pending,
}

impl DiscoverError {
    /// Whether to retry with the account's token, which goes to another server. Not if the key
    /// was rejected, nor after a timeout.
    fn allows_token_fallback(&self) -> bool {
        match self {
            Self::Call(CallError::Wire(WireError::Remote(_))) => true,
            Self::Call(error) => allows_other_server(error),
            _ => false,
        }
    }
}

impl CatalogClient {
    /// Identifies the account and server of the list.
    pub fn fingerprint(&self) -> AccountFingerprint {
        match &self.credential {
            CatalogCredential::Key { key, .. } => AccountFingerprint::of_key(key, &self.host()),
            CatalogCredential::Login { name, .. } => {
                AccountFingerprint::of_login(name, &self.host())
            }
        }
    }

    /// Returns the server that the list is fetched from.
    pub(super) fn host(&self) -> String {
        match &self.credential {
            CatalogCredential::Key { .. } => self.endpoints.rest.to_string(),
            CatalogCredential::Login { .. } => self.endpoints.backend.to_string(),
        }
    }

    /// Fetches the models.
    pub async fn fetch_models(&self) -> Result<Vec<CatalogModel>, DiscoverError> {
        let models = match &self.credential {
            CatalogCredential::Key { key, account } => match self.with_key(key).await {
                Err(error) if error.allows_token_fallback() => {
                    // If both fail, the first error is reported.
                    self.with_login(account).await.map_err(|_| error)?
                }
                models => models?,
            },
            CatalogCredential::Login { account, .. } => self.with_login(account).await?,
        };
        if models.is_empty() {
            return Err(DiscoverError::Empty);
        }
        Ok(models)
    }

    async fn with_key(&self, key: &ApiKey) -> Result<Vec<CatalogModel>, DiscoverError> {
        let call = Call {
            base: &self.endpoints.rest,
            path: REST_PATH,
            headers: self.identity.rest(key.secret()),
            version: HttpVersion::Http1,
            deadline: DEADLINE,
        };
        let response = self
            .http
            .get_json(call)
            .await
            .map_err(|error| match error {
                CallError::Wire(WireError::Remote(remote)) if remote.status == Some(401) => {
                    DiscoverError::Rejected(remote.text())
                }
                error => error.into(),
            })?;
        let models = CatalogModel::list_from_json(&response);
        models.ok_or_else(|| CallError::from(TransportError::Message).into())
    }

    /// Makes both calls: one returns what the account may use, the other the parameters of the
    /// models. The result of either alone is used if the other fails.
    async fn with_login(&self, account: &Account) -> Result<Vec<CatalogModel>, DiscoverError> {
        let (usable, available) = tokio::join!(
            account.authorized(|token| self.usable(token)),
            account.authorized(|token| self.available(token))
        );
        match (usable, available) {
            (Ok(usable), Ok(available)) => Ok(merge(&usable.models, available)),
            (Ok(usable), Err(_)) => Ok(merge(&usable.models, Vec::new())),
            (Err(_), Ok(available)) => Ok(merge(&[], available)),
            (Err(error), Err(_)) => Err(error.into()),
        }
    }

    /// Asks the agent server, which has the service of this call, and the backend if the agent
    /// server does not have the call.
    async fn usable(&self, token: SecretString) -> Result<GetUsableModelsResponse, CallError> {
        let request = GetUsableModelsRequest::default();
        let Endpoints { agent, backend, .. } = &self.endpoints;
        let call = self.call(agent, USABLE_PATH, &token);
        match self.http.call(call, &request).await {
            Err(error) if agent != backend && allows_other_server(&error) => {
                let call = self.call(backend, USABLE_PATH, &token);
                self.http.call(call, &request).await
            }
            answer => answer,
        }
    }

    async fn available(&self, token: SecretString) -> Result<Vec<AvailableModel>, CallError> {
        let request = AvailableModelsRequest {
            use_model_parameters: Some(true),
            do_not_use_markdown: Some(true),
            ..AvailableModelsRequest::default()
        };
        let mut call = self.call(&self.endpoints.backend, AVAILABLE_PATH, &token);
        let kind = HeaderValue::from_static("application/proto");
        call.headers.insert(CONTENT_TYPE, kind);
        let body = Bytes::from(request.encode_to_vec());
        let response = self.http.exchange(Method::POST, call, body).await?;
        available_models::decode(response).map_err(|_| TransportError::Message.into())
    }

    fn call<'a>(&self, base: &'a BaseUrl, path: &'a str, token: &SecretString) -> Call<'a> {
        Call {
            base,
            path,
            headers: self.identity.unary(token),
            version: HttpVersion::Http1,
            deadline: DEADLINE,
        }
    }
}

/// Returns whether another server may answer a call that failed: not if the token was refused, and
/// not after a timeout, because the caller waits for both.
fn allows_other_server(error: &CallError) -> bool {
    match error {
        CallError::Wire(WireError::Transport(error)) => {
            !matches!(error, TransportError::Deadline { .. })
        }
        CallError::Wire(WireError::Remote(remote)) => remote.code != Code::Unauthenticated,
        CallError::Setup(_) => false,
    }
}

/// Merges both responses. If there are usable models, only those are listed.
fn merge(usable: &[ModelDetails], available: Vec<AvailableModel>) -> Vec<CatalogModel> {
    let shown = |model: &AvailableModel| {
        model.is_hidden != Some(true) && model.supports_agent != Some(false)
    };
    if usable.is_empty() {
        return available
            .into_iter()
            .filter(shown)
            .map(catalog_model)
            .collect();
    }
    let mut available = available;
    usable
        .iter()
        .filter(|details| !details.model_id.is_empty())
        .map(|details| {
            let known = available
                .iter()
                .position(|model| model.name == details.model_id);
            let mut model = known.map_or_else(CatalogModel::default, |at| {
                catalog_model(available.swap_remove(at))
            });
            model.id.clone_from(&details.model_id);
            if model.display_name.is_empty() {
                model.display_name.clone_from(&details.display_name);
            }
            for alias in &details.aliases {
                if !model.aliases.contains(alias) {
                    model.aliases.push(alias.clone());
                }
            }
            model
        })
        .collect()
}

fn catalog_model(model: AvailableModel) -> CatalogModel {
    let parameters: Vec<Parameter> = if model.parameters.is_empty() {
        parameters_of_variants(&model)
    } else {
        model.parameters.into_iter().map(parameter).collect()
    };
    let variants = model.variants.into_iter().map(|variant| ModelVariant {
        params: variant
            .parameters
            .into_iter()
            .map(|(id, value)| ParameterChoice { id, value })
            .collect(),
        is_default: variant.is_default_non_max_config == Some(true),
        is_max_mode: variant.is_max_mode,
        is_default_max: variant.is_default_max_config == Some(true),
    });
    CatalogModel {
        id: model.name,
        display_name: model.client_display_name.unwrap_or_default(),
        aliases: model.id_aliases,
        variants: variants.collect(),
        parameters,
        context_window: model.context_token_limit.filter(|limit| *limit > 0),
        max_context_window: model
            .context_token_limit_for_max_mode
            .filter(|limit| *limit > 0),
        supports_images: model.supports_images,
    }
}

fn parameter((id, values): (String, Vec<String>)) -> Parameter {
    let values = values.into_iter().map(|value| ParameterValue { value });
    Parameter {
        id,
        values: values.collect(),
    }
}

/// Derives the parameters from the variants, because older responses do not define them.
fn parameters_of_variants(model: &AvailableModel) -> Vec<Parameter> {
    let mut seen: Vec<(String, Vec<String>)> = Vec::new();
    for (id, value) in model
        .variants
        .iter()
        .flat_map(|variant| &variant.parameters)
    {
        let at = match seen.iter().position(|(known, _)| known == id) {
            Some(at) => at,
            None => {
                seen.push((id.clone(), Vec::new()));
                seen.len() - 1
            }
        };
        if !seen[at].1.contains(value) {
            seen[at].1.push(value.clone());
        }
    }
    seen.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(id: &str) -> ModelDetails {
        ModelDetails {
            model_id: id.into(),
            display_name: format!("{id} by name"),
            ..ModelDetails::default()
        }
    }

    fn model(name: &str, variants: &[(&str, &str)]) -> AvailableModel {
        AvailableModel {
            name: name.into(),
            variants: variants
                .iter()
                .map(|(id, value)| available_models::Variant {
                    parameters: vec![((*id).into(), (*value).into())],
                    ..available_models::Variant::default()
                })
                .collect(),
            ..AvailableModel::default()
        }
    }

    #[test]
    fn usable_models_are_listed_with_the_parameters_of_available_ones() {
        let available = vec![
            model(
                "a",
                &[("context", "200k"), ("context", "1m"), ("context", "1m")],
            ),
            model("not-usable", &[]),
        ];
        let models = merge(&[details("a"), details("flat-high-fast")], available);
        let ids: Vec<_> = models.iter().map(|model| model.id.as_str()).collect();
        assert_eq!(ids, ["a", "flat-high-fast"]);
        let context = models[0].parameter("context").unwrap();
        let values: Vec<_> = context.values.iter().map(|v| v.value.as_str()).collect();
        assert_eq!(values, ["200k", "1m"]);
        assert_eq!(models[1].name(), "flat-high-fast by name");
    }

    #[test]
    fn hidden_models_and_models_without_agent_support_are_left_out() {
        let mut hidden = model("hidden", &[]);
        hidden.is_hidden = Some(true);
        let mut chat = model("chat", &[]);
        chat.supports_agent = Some(false);
        let models = merge(&[], vec![hidden, chat, model("shown", &[])]);
        assert_eq!(models.len(), 1);
        assert_eq!(models[0].id, "shown");
    }
}
