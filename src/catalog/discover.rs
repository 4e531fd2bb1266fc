//! Asking Cursor for its models: over REST with an API key, over two calls with a login.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use prost::Message as _;
use secrecy::SecretString;

use super::cache::Fingerprint;
use super::item::{Choice, Item, Parameter, ParameterValue, Variant};
use crate::account::{Account, ApiKey, AuthorizedError};
use crate::wire::available_models::{self, AvailableModel};
use crate::wire::endpoint::Endpoints;
use crate::wire::error::{TransportError, WireError};
use crate::wire::headers::{HttpVersion, Identity};
use crate::wire::http::Http;
use crate::wire::proto::agent::v1::{
    GetUsableModelsRequest, GetUsableModelsResponse, ModelDetails,
};
use crate::wire::proto::aiserver::v1::AvailableModelsRequest;
use crate::wire::unary::{Call, CallError};

const REST: &str = "/v1/models";
const USABLE: &str = "/agent.v1.AgentService/GetUsableModels";
const AVAILABLE: &str = "/aiserver.v1.AiService/AvailableModels";
/// How long Cursor may take, whoever waits.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);

/// Who asks, and where.
#[derive(Debug, Clone)]
pub struct Access {
    /// Clients.
    pub http: Arc<Http>,
    /// Hosts.
    pub endpoints: Endpoints,
    /// How we introduce ourselves.
    pub identity: Identity,
    /// What we have.
    pub credential: Credential,
}

/// What opens the catalogue.
#[derive(Debug, Clone)]
pub enum Credential {
    /// An API key.
    Key {
        /// The key.
        key: ApiKey,
        /// The account that hands out tokens for it.
        account: Account,
    },
    /// An account that hands out tokens.
    Login {
        /// The account.
        account: Account,
        /// What tells it from other accounts, such as its user id.
        name: String,
    },
}

/// Why there is no live list.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DiscoverError {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The call failed, or there is no token for it.
    #[error(transparent)]
    Authorized(#[from] AuthorizedError),
    /// Cursor does not know the key.
    #[error("Cursor did not accept the API key ({0})")]
    Refused(String),
    /// An answer without models.
    #[error("Cursor listed no models")]
    Empty,
    /// No answer within the time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Slow(Duration),
    /// No time was left to wait.
    #[error("no answer yet")]
    Pending,
}

impl DiscoverError {
    /// Whether an account's token may open what the key did not: another host is asked with
    /// it. Not for a key that is refused, nor after all the time was spent.
    fn suggests_token(&self) -> bool {
        match self {
            Self::Call(CallError::Wire(WireError::Transport(error))) => {
                !matches!(error, TransportError::Deadline { .. })
            }
            Self::Call(CallError::Wire(WireError::Remote(_))) => true,
            _ => false,
        }
    }
}

impl Access {
    /// Whose list it is.
    pub fn fingerprint(&self) -> Fingerprint {
        match &self.credential {
            Credential::Key { key, .. } => Fingerprint::of_key(key, &self.host()),
            Credential::Login { name, .. } => Fingerprint::of_login(name, &self.host()),
        }
    }

    /// Where it is asked for.
    pub(super) fn host(&self) -> String {
        match &self.credential {
            Credential::Key { .. } => self.endpoints.rest.to_string(),
            Credential::Login { .. } => self.endpoints.backend.to_string(),
        }
    }

    /// Cursor's models, now.
    pub async fn discover(&self) -> Result<Vec<Item>, DiscoverError> {
        let items = match &self.credential {
            Credential::Key { key, account } => match self.with_key(key).await {
                Err(error) if error.suggests_token() => {
                    // Should both fail, the first failure is the one to tell.
                    self.with_login(account).await.map_err(|_| error)?
                }
                items => items?,
            },
            Credential::Login { account, .. } => self.with_login(account).await?,
        };
        if items.is_empty() {
            return Err(DiscoverError::Empty);
        }
        Ok(items)
    }

    async fn with_key(&self, key: &ApiKey) -> Result<Vec<Item>, DiscoverError> {
        let call = Call {
            base: &self.endpoints.rest,
            path: REST,
            headers: self.identity.rest(key.secret()),
            version: HttpVersion::Http1,
            deadline: DEADLINE,
        };
        let answer = self
            .http
            .get_json(call)
            .await
            .map_err(|error| match error {
                CallError::Wire(WireError::Remote(remote)) if remote.status == Some(401) => {
                    DiscoverError::Refused(remote.text())
                }
                error => error.into(),
            })?;
        let items = Item::read_list(&answer);
        items.ok_or_else(|| CallError::from(TransportError::Message).into())
    }

    /// Both calls: one knows what the account may use, the other what can be chosen. Either
    /// alone is a list too.
    async fn with_login(&self, account: &Account) -> Result<Vec<Item>, DiscoverError> {
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

    async fn usable(&self, token: SecretString) -> Result<GetUsableModelsResponse, CallError> {
        let request = GetUsableModelsRequest::default();
        self.http.call(self.call(USABLE, &token), &request).await
    }

    async fn available(&self, token: SecretString) -> Result<Vec<AvailableModel>, CallError> {
        let request = AvailableModelsRequest {
            use_model_parameters: Some(true),
            do_not_use_markdown: Some(true),
            ..AvailableModelsRequest::default()
        };
        let mut call = self.call(AVAILABLE, &token);
        let kind = HeaderValue::from_static("application/proto");
        call.headers.insert(CONTENT_TYPE, kind);
        let body = Bytes::from(request.encode_to_vec());
        let answer = self.http.exchange(Method::POST, call, body).await?;
        available_models::decode(answer).map_err(|_| TransportError::Message.into())
    }

    fn call<'a>(&'a self, path: &'a str, token: &SecretString) -> Call<'a> {
        Call {
            base: &self.endpoints.backend,
            path,
            headers: self.identity.unary(token),
            version: HttpVersion::Http1,
            deadline: DEADLINE,
        }
    }
}

/// One list of both answers. The usable models decide which there are, if there are any.
fn merge(usable: &[ModelDetails], available: Vec<AvailableModel>) -> Vec<Item> {
    let shown = |model: &AvailableModel| {
        model.is_hidden != Some(true) && model.supports_agent != Some(false)
    };
    if usable.is_empty() {
        return available.into_iter().filter(shown).map(item).collect();
    }
    let mut available = available;
    usable
        .iter()
        .filter(|details| !details.model_id.is_empty())
        .map(|details| {
            let known = available
                .iter()
                .position(|model| model.name == details.model_id);
            let mut item = known.map_or_else(Item::default, |at| item(available.swap_remove(at)));
            item.id.clone_from(&details.model_id);
            if item.display_name.is_empty() {
                item.display_name.clone_from(&details.display_name);
            }
            for alias in &details.aliases {
                if !item.aliases.contains(alias) {
                    item.aliases.push(alias.clone());
                }
            }
            item
        })
        .collect()
}

fn item(model: AvailableModel) -> Item {
    let parameters: Vec<Parameter> = if model.parameters.is_empty() {
        seen_in_variants(&model)
    } else {
        model.parameters.into_iter().map(parameter).collect()
    };
    let variants = model.variants.into_iter().map(|variant| Variant {
        params: variant
            .parameters
            .into_iter()
            .map(|(id, value)| Choice { id, value })
            .collect(),
        is_default: variant.is_default_non_max_config == Some(true),
        is_max_mode: variant.is_max_mode,
        is_default_max: variant.is_default_max_config == Some(true),
    });
    Item {
        id: model.name,
        display_name: model.client_display_name.unwrap_or_default(),
        aliases: model.id_aliases,
        variants: variants.collect(),
        parameters,
        context_window: model.context_token_limit.filter(|limit| *limit > 0),
        max_context_window: model
            .context_token_limit_for_max_mode
            .filter(|limit| *limit > 0),
    }
}

fn parameter((id, values): (String, Vec<String>)) -> Parameter {
    let values = values.into_iter().map(|value| ParameterValue { value });
    Parameter {
        id,
        values: values.collect(),
    }
}

/// Older answers define no parameters; the variants show them.
fn seen_in_variants(model: &AvailableModel) -> Vec<Parameter> {
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
    fn the_usable_models_decide_and_the_available_ones_describe() {
        let available = vec![
            model(
                "a",
                &[("context", "200k"), ("context", "1m"), ("context", "1m")],
            ),
            model("not-usable", &[]),
        ];
        let items = merge(&[details("a"), details("flat-high-fast")], available);
        let ids: Vec<_> = items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["a", "flat-high-fast"]);
        let context = items[0].parameter("context").unwrap();
        let values: Vec<_> = context.values.iter().map(|v| v.value.as_str()).collect();
        assert_eq!(values, ["200k", "1m"]);
        assert_eq!(items[1].name(), "flat-high-fast by name");
    }

    #[test]
    fn hidden_models_stay_hidden() {
        let mut hidden = model("hidden", &[]);
        hidden.is_hidden = Some(true);
        let mut chat = model("chat", &[]);
        chat.supports_agent = Some(false);
        let items = merge(&[], vec![hidden, chat, model("shown", &[])]);
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].id, "shown");
    }
}
