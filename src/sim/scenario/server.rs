//! `[server]`: settings of the whole simulated backend.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::fields::{self, Fields};
use super::library::members;
use super::source::Node;
use super::{ScenarioError, step};

/// Settings of the whole server.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::sim) struct ServerSettings {
    /// `http2_config` of GetServerConfig.
    pub(in crate::sim) http2: Option<u8>,
    /// Streams a client may have open on one HTTP/2 connection.
    pub(in crate::sim) max_streams: Option<u32>,
    /// The agent URL of GetServerConfig.
    pub(in crate::sim) agent_url: Option<String>,
    /// The catalogue, as items of `GET /v1/models`.
    pub(in crate::sim) models: Option<Vec<Value>>,
    /// The account's privacy mode, a number or a name of the enum.
    pub(in crate::sim) privacy_mode: Option<Value>,
    /// The answer of the API key exchange.
    pub(in crate::sim) exchange: Option<Canned>,
    /// How long access tokens are good.
    pub(in crate::sim) token_ttl: Option<Duration>,
    /// API keys that are refused.
    pub(in crate::sim) invalid_keys: Option<Vec<String>>,
    /// How many login polls find nothing.
    pub(in crate::sim) login_pending: Option<u64>,
    /// Answers by path.
    pub(in crate::sim) unary: BTreeMap<String, Canned>,
}

/// What becomes of a call, fixed in advance.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sim) struct Canned {
    /// What.
    pub(in crate::sim) fate: Fate,
    /// Calls before it that are answered as usual.
    pub(in crate::sim) after: u64,
    /// How often; afterwards the call is answered as usual.
    pub(in crate::sim) times: Option<u64>,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sim) enum Fate {
    /// An answer.
    Answer {
        /// The status.
        status: u16,
        /// The body; a string as it is, anything else as JSON or, for a call of the schema
        /// that succeeds, as its message.
        body: Option<Value>,
    },
    /// The usual answer, so much later.
    Late(Duration),
    /// A stream reset with this code; HTTP/1.1 drops the connection instead.
    Reset(u32),
    /// GOAWAY with this code; HTTP/1.1 drops the connection instead.
    GoAway(u32),
    /// The connection is dropped.
    Cut,
}

impl Canned {
    fn read(file: &str, node: &Node, what: &'static str) -> Result<Self, ScenarioError> {
        let mut table = Fields::new(file, node, what)?;
        let fate = match (
            table.get("reset"),
            table.get("goaway"),
            table.get("late_ms"),
        ) {
            (Some(node), _, _) => Fate::Reset(step::error_code(file, node, "reset")?),
            (_, Some(node), _) => Fate::GoAway(step::error_code(file, node, "goaway")?),
            (_, _, Some(node)) => Fate::Late(Duration::from_millis(fields::number(
                file, node, "late_ms",
            )?)),
            _ if table.flag("cut")? => Fate::Cut,
            _ => Fate::Answer {
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
        Ok(Self { fate, after, times })
    }
}

/// An HTTP status.
pub(super) fn status(file: &str, node: &Node) -> Result<u16, ScenarioError> {
    let number = fields::number(file, node, "status")?;
    match u16::try_from(number) {
        Ok(status @ 200..=599) => Ok(status),
        _ => {
            let message = format!("{number} is no HTTP status from 200 to 599");
            Err(ScenarioError::at(file, node.line, message))
        }
    }
}

impl ServerSettings {
    pub(super) fn read(file: &str, node: &Node) -> Result<Self, ScenarioError> {
        let mut table = Fields::new(file, node, "server")?;
        let http2 = match table.get("http2") {
            None => None,
            Some(node) => match fields::number(file, node, "http2")? {
                value @ 0..=4 => Some(value as u8),
                _ => return Err(fields::wrong(file, node, "http2", "a number from 0 to 4")),
            },
        };
        let models = match table.get("models") {
            None => None,
            Some(node) => {
                let items = fields::array(file, node, "models")?;
                for item in items {
                    Fields::new(file, item, "a model")?.need("id")?;
                }
                Some(items.iter().map(Node::to_json).collect())
            }
        };
        let invalid_keys = match table.get("invalid_keys") {
            None => None,
            Some(node) => Some(
                fields::array(file, node, "invalid_keys")?
                    .iter()
                    .map(|key| fields::text(file, key, "invalid_keys"))
                    .collect::<Result<_, _>>()?,
            ),
        };
        let unary = match table.get("unary") {
            None => BTreeMap::new(),
            Some(node) => members(node)
                .iter()
                .map(|member| {
                    if !member.name.starts_with('/') {
                        let message = format!("{:?} is no path: it must start with /", member.name);
                        return Err(ScenarioError::at(file, member.line, message));
                    }
                    let canned = Canned::read(file, &member.node, "a unary answer")?;
                    Ok((member.name.clone(), canned))
                })
                .collect::<Result<_, _>>()?,
        };
        let max_streams = match table.get("max_streams") {
            None => None,
            Some(node) => match u32::try_from(fields::number(file, node, "max_streams")?) {
                Ok(streams @ 1..) => Some(streams),
                _ => return Err(fields::wrong(file, node, "max_streams", "a number from 1")),
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
                .map(|node| Canned::read(file, node, "exchange"))
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
