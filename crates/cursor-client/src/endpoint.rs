//! The servers we connect to.
//!
//! Agent runs: `PI_CURSOR_AGENT_URL`, `CURSOR_AGENT_URL`, the Cursor CLI's cached server
//! configuration, `CURSOR_BACKEND_URL`, then the default. Everything else follows
//! `CURSOR_BACKEND_URL` or its default.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use url::{Host, Url};

/// The default server for runs.
pub const DEFAULT_AGENT: &str = "https://agentn.us.api5.cursor.sh";
/// The default server for unary calls and the key exchange.
pub const DEFAULT_BACKEND: &str = "https://api2.cursor.sh";
/// The default server for the REST API.
pub const DEFAULT_REST: &str = "https://api.cursor.com";
/// The default website for logging in.
pub const DEFAULT_WEBSITE: &str = "https://cursor.com";

/// The Cursor CLI's configuration, relative to the home directory.
const CLI_CONFIG: &str = ".cursor/cli-config.json";

/// A validated base URL: HTTPS, or plain HTTP to this machine; no credentials, query or
/// fragment; no trailing slash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BaseUrl(Url);

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct EndpointError {
    /// The setting it came from.
    pub setting: &'static str,
    /// What is wrong and what to do.
    pub problem: Problem,
}

/// What is wrong with an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a URL at all.
    #[error("not a usable URL ({0}); expected something like https://api2.cursor.sh")]
    InvalidState(String),
    /// Plain HTTP over the network, which would expose the access token.
    #[error(
        "plain http is only accepted for this machine (localhost, 127.0.0.1, [::1]); use https for {0}"
    )]
    PlainHttp(String),
    /// Neither http nor https.
    #[error("unsupported scheme {0:?}; use https")]
    Scheme(String),
    /// A user or password in the URL.
    #[error("the URL must not contain a user or password; set the key with CURSOR_API_KEY")]
    Credentials,
    /// A query or fragment, which a base URL cannot have.
    #[error("the URL must not have a query or fragment")]
    Query,
}

/// The configured addresses as text, which [`Endpoints::resolve`] checks; blank ones count as
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointOptions {
    /// `PI_CURSOR_AGENT_URL`.
    pub pi_agent: Option<String>,
    /// `CURSOR_AGENT_URL`.
    pub agent: Option<String>,
    /// `CURSOR_BACKEND_URL`.
    pub backend: Option<String>,
    /// `CURSOR_WEBSITE_URL`.
    pub website: Option<String>,
    /// The home directory, which contains the Cursor CLI's cached configuration.
    pub home: Option<PathBuf>,
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlSource {
    /// The setting of this name.
    Setting(&'static str),
    /// The Cursor CLI's cached configuration.
    CliConfig,
    /// The default, because nothing was set.
    Default,
}

/// The effective base URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// Agent runs.
    pub agent: BaseUrl,
    /// Where `agent` came from.
    pub agent_source: UrlSource,
    /// Unary Connect calls and `/auth`.
    pub backend: BaseUrl,
    /// REST `/v1`.
    pub rest: BaseUrl,
    /// The website for logging in with a browser.
    pub website: BaseUrl,
}

impl BaseUrl {
    /// Validates the URL in `setting`.
    pub fn parse(setting: &'static str, text: &str) -> Result<Self, EndpointError> {
        let fail = |problem| EndpointError { setting, problem };
        let mut url =
            Url::parse(text.trim()).map_err(|e| fail(Problem::InvalidState(e.to_string())))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fail(Problem::Credentials));
        }
        let Some(host) = url.host_str().map(str::to_owned) else {
            return Err(fail(Problem::InvalidState("no host".into())));
        };
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            "http" => return Err(fail(Problem::PlainHttp(host))),
            other => return Err(fail(Problem::Scheme(other.to_owned()))),
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(fail(Problem::Query));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }

    /// Returns the URL of `path` (which starts with a slash) below this base.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0.as_str().trim_end_matches('/'))
    }

    /// Returns host and port, for messages.
    pub fn authority(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Returns whether the scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl Endpoints {
    /// Resolves every URL from the options and the CLI's cache below the home directory.
    pub fn resolve(options: &EndpointOptions) -> Result<Self, EndpointError> {
        let parse = |name: &'static str, value: &Option<String>| {
            let value = value.as_ref().filter(|value| !value.trim().is_empty());
            value.map(|value| BaseUrl::parse(name, value)).transpose()
        };
        let backend = parse("CURSOR_BACKEND_URL", &options.backend)?;
        let (agent, agent_source) =
            if let Some(url) = parse("PI_CURSOR_AGENT_URL", &options.pi_agent)? {
                (url, UrlSource::Setting("PI_CURSOR_AGENT_URL"))
            } else if let Some(url) = parse("CURSOR_AGENT_URL", &options.agent)? {
                (url, UrlSource::Setting("CURSOR_AGENT_URL"))
            } else if let Some(url) = options.home.as_deref().and_then(cached_agent_url)
            // A cached URL of the real service must not override a backend the user chose.
            && backend.is_none()
            {
                (url, UrlSource::CliConfig)
            } else if let Some(url) = &backend {
                (url.clone(), UrlSource::Setting("CURSOR_BACKEND_URL"))
            } else {
                (
                    BaseUrl::parse("default", DEFAULT_AGENT)?,
                    UrlSource::Default,
                )
            };
        let or_default = |default| match &backend {
            Some(url) => Ok(url.clone()),
            None => BaseUrl::parse("default", default),
        };
        Ok(Self {
            agent,
            agent_source,
            rest: or_default(DEFAULT_REST)?,
            website: match parse("CURSOR_WEBSITE_URL", &options.website)? {
                Some(url) => url,
                None => BaseUrl::parse("default", DEFAULT_WEBSITE)?,
            },
            backend: or_default(DEFAULT_BACKEND)?,
        })
    }
}

/// Returns the agent server in the CLI's cached configuration; only Cursor's own hosts are
/// accepted.
fn cached_agent_url(home: &Path) -> Option<BaseUrl> {
    let config: Json = serde_json::from_slice(&std::fs::read(home.join(CLI_CONFIG)).ok()?).ok()?;
    let urls = &config["serverConfigCache"]["agentUrlConfig"];
    ["agentnUrl", "agentUrl"]
        .iter()
        .filter_map(|key| urls[key].as_str())
        .filter_map(|text| BaseUrl::parse("cli-config.json", text).ok())
        .find(|url| {
            url.is_tls()
                && url.0.host_str().is_some_and(|host| {
                    let host = host.to_ascii_lowercase();
                    host == "cursor.sh" || host.ends_with(".cursor.sh")
                })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(vars: &[(&str, &str)], home: Option<&Path>) -> Result<Endpoints, EndpointError> {
        let find = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Endpoints::resolve(&EndpointOptions {
            pi_agent: find("PI_CURSOR_AGENT_URL"),
            agent: find("CURSOR_AGENT_URL"),
            backend: find("CURSOR_BACKEND_URL"),
            website: find("CURSOR_WEBSITE_URL"),
            home: home.map(Path::to_owned),
        })
    }

    fn home_with(config: &str) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".cursor")).unwrap();
        std::fs::write(home.path().join(CLI_CONFIG), config).unwrap();
        home
    }

    #[test]
    fn the_agent_url_follows_the_documented_order() {
        let home = home_with(
            r#"{"serverConfigCache":{"agentUrlConfig":{"agentUrl":"https://a.api5.cursor.sh","agentnUrl":"https://n.api5.cursor.sh/"}}}"#,
        );
        let agent = |vars: &[(&str, &str)], home| resolve(vars, home).unwrap().agent.to_string();
        assert_eq!(agent(&[], None), DEFAULT_AGENT);
        assert_eq!(agent(&[], Some(home.path())), "https://n.api5.cursor.sh");
        let backend = ("CURSOR_BACKEND_URL", "http://127.0.0.1:1");
        assert_eq!(agent(&[backend], Some(home.path())), "http://127.0.0.1:1");
        let plain = ("CURSOR_AGENT_URL", "https://two.example");
        assert_eq!(
            agent(&[backend, plain], Some(home.path())),
            "https://two.example"
        );
        let pi = ("PI_CURSOR_AGENT_URL", "https://one.example/");
        assert_eq!(agent(&[backend, plain, pi], None), "https://one.example");
        assert_eq!(agent(&[("CURSOR_AGENT_URL", "  ")], None), DEFAULT_AGENT);
    }

    #[test]
    fn the_backend_url_also_applies_to_rest() {
        let all = resolve(&[("CURSOR_BACKEND_URL", "https://localhost:4/x/")], None).unwrap();
        assert_eq!(
            all.rest.join("/v1/models"),
            "https://localhost:4/x/v1/models"
        );
        assert_eq!(all.backend.to_string(), "https://localhost:4/x");
        let none = resolve(&[], None).unwrap();
        assert_eq!(
            none.rest.join("/v1/models"),
            "https://api.cursor.com/v1/models"
        );
        assert_eq!(none.backend.to_string(), DEFAULT_BACKEND);
    }

    #[test]
    fn a_foreign_or_malformed_cache_is_ignored() {
        for config in [
            "not json",
            r#"{"serverConfigCache":{"agentUrlConfig":{"agentnUrl":"https://evil.example"}}}"#,
            r#"{"serverConfigCache":{"agentUrlConfig":{"agentnUrl":"https://evilcursor.sh"}}}"#,
            r#"{"serverConfigCache":{"agentUrlConfig":{"agentnUrl":"http://n.api5.cursor.sh"}}}"#,
        ] {
            let home = home_with(config);
            let endpoints = resolve(&[], Some(home.path())).unwrap();
            assert_eq!(endpoints.agent_source, UrlSource::Default, "{config}");
        }
    }

    #[test]
    fn errors_of_invalid_urls_say_what_to_do() {
        let error = |text| {
            resolve(&[("CURSOR_BACKEND_URL", text)], None)
                .unwrap_err()
                .to_string()
        };
        insta::assert_snapshot!(error("http://example.com"), @"CURSOR_BACKEND_URL: plain http is only accepted for this machine (localhost, 127.0.0.1, [::1]); use https for example.com");
        insta::assert_snapshot!(error("cursor"), @"CURSOR_BACKEND_URL: not a usable URL (relative URL without a base); expected something like https://api2.cursor.sh");
        insta::assert_snapshot!(error("ftp://localhost"), @r#"CURSOR_BACKEND_URL: unsupported scheme "ftp"; use https"#);
        insta::assert_snapshot!(error("https://u:p@h"), @"CURSOR_BACKEND_URL: the URL must not contain a user or password; set the key with CURSOR_API_KEY");
        insta::assert_snapshot!(error("https://h/?q"), @"CURSOR_BACKEND_URL: the URL must not have a query or fragment");
    }
}
