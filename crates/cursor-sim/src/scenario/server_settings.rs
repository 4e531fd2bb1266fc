//! `[server]`: settings of the simulated backend.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::library::members;
use super::source::Node;
use super::table_reader::{self, TableReader};
use super::{ScenarioError, step};

/// Settings of the simulated backend.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ServerSettings {
    /// `http2_config` of GetServerConfig.
    pub(crate) http2: Option<u8>,
    /// Limit of open streams on one HTTP/2 connection.
    pub(crate) max_streams: Option<u32>,
    /// The agent URL of GetServerConfig.
    pub(crate) agent_url: Option<String>,
    /// The models, as items of `GET /v1/models`.
    pub(crate) models: Option<Vec<Value>>,
    /// The account's privacy mode, a number or a name of the enum.
    pub(crate) privacy_mode: Option<Value>,
    /// Canned reply of the API key exchange.
    pub(crate) exchange: Option<CannedReply>,
    /// Lifetime of access tokens.
    pub(crate) token_ttl: Option<Duration>,
    /// API keys that are rejected.
    pub(crate) invalid_keys: Option<Vec<String>>,
    /// Number of login polls before the user has signed in.
    pub(crate) login_pending: Option<u64>,
    /// Canned replies by path.
    pub(crate) unary: BTreeMap<String, CannedReply>,
}

impl ServerSettings {
    /// Returns the models of canned replies to `GET /v1/models`.
    pub(crate) fn canned_models(&self) -> Vec<Value> {
        let reply = self.unary.get("/v1/models").map(|reply| &reply.action);
        match reply {
            Some(CannedAction::Respond {
                body: Some(body), ..
            }) => body["items"].as_array().cloned().unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

/// A canned reply to a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CannedReply {
    /// What happens to the call.
    pub(crate) action: CannedAction,
    /// Number of earlier calls that are handled as usual.
    pub(crate) after: u64,
    /// Number of calls it applies to; later ones are handled as usual.
    pub(crate) times: Option<u64>,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CannedAction {
    /// Send this response.
    Respond {
        status: u16,
        /// The body: a string as it is, anything else as JSON or, for a successful call of the
        /// schema, as its message.
        body: Option<Value>,
    },
    /// Send the usual response after this time.
    Delay(Duration),
    /// Reset the stream with this code; HTTP/1.1 drops the connection instead.
    Reset(u32),
    /// Send GOAWAY with this code; HTTP/1.1 drops the connection instead.
    GoAway(u32),
    /// Drop the connection.
    Cut,
}

impl CannedReply {
    fn read(file: &str, node: &Node, what: &'static str) -> Result<Self, ScenarioError> {
        let mut table = TableReader::new(file, node, what)?;
        let action = match (
            table.get("reset"),
            table.get("goaway"),
            table.get("late_ms"),
        ) {
            (Some(node), _, _) => CannedAction::Reset(step::error_code(file, node, "reset")?),
            (_, Some(node), _) => CannedAction::GoAway(step::error_code(file, node, "goaway")?),
            (_, _, Some(node)) => CannedAction::Delay(Duration::from_millis(table_reader::number(
                file, node, "late_ms",
            )?)),
            _ if table.flag("cut")? => CannedAction::Cut,
            _ => CannedAction::Respond {
                status: match table.get("status") {
                    Some(node) => status(file, node)?,
                    None => 200,
                },
                body: table.get("body").map(Node::to_json),
            },
        };
        let after = table.number("after")?.unwrap_or_default();
        let times = table.number("times")?;
        table.finish()?;
        Ok(Self {
            action,
            after,
            times,
        })
    }
}

/// Reads an HTTP status.
pub(super) fn status(file: &str, node: &Node) -> Result<u16, ScenarioError> {
    let number = table_reader::number(file, node, "status")?;
    match u16::try_from(number) {
        Ok(status @ 200..=599) => Ok(status),
        _ => {
            let message = format!("{number} is not an HTTP status from 200 to 599");
            Err(ScenarioError::at(file, node.line, message))
        }
    }
}

impl ServerSettings {
    pub(super) fn read(file: &str, node: &Node) -> Result<Self, ScenarioError> {
        let mut table = TableReader::new(file, node, "server")?;
        let http2 = match table.get("http2") {
            None => None,
            Some(node) => match table_reader::number(file, node, "http2")? {
                value @ 0..=4 => Some(value as u8),
                _ => {
                    return Err(table_reader::type_error(
                        file,
                        node,
                        "http2",
                        "a number from 0 to 4",
                    ));
                }
            },
        };
        let models = match table.get("models") {
            None => None,
            Some(node) => {
                let items = table_reader::array(file, node, "models")?;
                for item in items {
                    TableReader::new(file, item, "a model")?.require("id")?;
                }
                Some(items.iter().map(Node::to_json).collect())
            }
        };
        let invalid_keys = match table.get("invalid_keys") {
            None => None,
            Some(node) => Some(
                table_reader::array(file, node, "invalid_keys")?
                    .iter()
                    .map(|key| table_reader::text(file, key, "invalid_keys"))
                    .collect::<Result<_, _>>()?,
            ),
        };
        let unary = match table.get("unary") {
            None => BTreeMap::new(),
            Some(node) => members(node)
                .iter()
                .map(|member| {
                    if !member.name.starts_with('/') {
                        let message =
                            format!("{:?} is not a path: it must start with /", member.name);
                        return Err(ScenarioError::at(file, member.line, message));
                    }
                    let canned = CannedReply::read(file, &member.node, "a unary answer")?;
                    Ok((member.name.clone(), canned))
                })
                .collect::<Result<_, _>>()?,
        };
        let max_streams = match table.get("max_streams") {
            None => None,
            Some(node) => match u32::try_from(table_reader::number(file, node, "max_streams")?) {
                Ok(streams @ 1..) => Some(streams),
                _ => {
                    return Err(table_reader::type_error(
                        file,
                        node,
                        "max_streams",
                        "a number from 1",
                    ));
                }
            },
        };
        let settings = Self {
            http2,
            max_streams,
            agent_url: table.text("agent_url")?,
            models,
            privacy_mode: table.get("privacy_mode").map(Node::to_json),
            exchange: table
                .get("exchange")
                .map(|node| CannedReply::read(file, node, "exchange"))
                .transpose()?,
            token_ttl: table.millis("token_ttl_ms")?,
            invalid_keys,
            login_pending: table.number("login_pending")?,
            unary,
        };
        table.finish()?;
        Ok(settings)
    }
}
