//! The configuration, read once at the start: the environment, then `config.toml`, then defaults.
//!
//! Everything below gets typed options; no other module and no crate reads settings. A new setting
//! is one entry in the [table](SETTINGS) and one line in [`Config::load`].

mod effective;
mod file;
mod native_tools;
pub mod parse;
pub mod settings;
mod table;
mod values;
mod warning;

use std::path::{Path, PathBuf};

use agent::catalog::CachePolicy;
use agent::run::{IdleLimits, RETRIES};
use agent::turn::{LONGEST_PARK, Policy};
use agent_tools::bridge::call_log::CallLogTarget;
use agent_tools::bridge::tool_set::BuiltinTools;
use agent_tools::workspace::secret_paths::SecretPaths;
use cursor_client::ClientOptions;
use cursor_client::account::Keyring;
use cursor_client::endpoint::EndpointOptions;
use cursor_client::headers::{HttpVersion, Identity};
use cursor_client::http_clients::TrustRoots;
use cursor_client::http_version::Preference;
use foundation::state_dir;
use http::HeaderValue;
use secrecy::SecretString;
use std::time::Duration;

pub use effective::EffectiveValue;
pub use settings::{SETTINGS, Setting};
pub use values::{Environment, ValueSource, Values};
pub use warning::{FileLocation, SettingProblem, Warning};

use crate::gateway::ModelNames;
use crate::telemetry::log_file::{self, LogDestination};
use file::FileValues;
use values::SettingReader;

/// What `secret-tool` needs to find the keyring and to ask the user to unlock it.
const KEYRING_VARIABLES: [&str; 8] = [
    "PATH",
    "HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "LANG",
];

/// The configuration of this process. `Debug` does not show secrets.
#[derive(Debug)]
pub struct Config {
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The state directory, which may not exist yet; `None` if there is no home directory either.
    pub state_dir: Option<PathBuf>,
    /// The connection to Cursor and the account.
    pub client: ClientOptions,
    /// Turns: tools, timeouts, limits.
    pub turn: Policy,
    /// The cache of the model list.
    pub model_cache: CachePolicy,
    /// Tool cards in the host.
    pub cards: CardOptions,
    /// The debug log.
    pub debug_log: LogDestination,
    /// The user's own token for the gateway, as it was given.
    pub gateway_token: Option<SecretString>,
    /// Clients of the gateway.
    pub gateway: GatewayOptions,
    /// The filter of the log on stderr (`RUST_LOG`).
    pub log_filter: Option<String>,
    /// What the environment says about the terminal.
    pub terminal: TerminalOptions,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The mistakes in the settings.
    pub warnings: Vec<Warning>,
    values: Values,
}

/// The settings of tool cards; `None` leaves it to what suits the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardOptions {
    /// Whether cards are shown.
    pub display: Option<bool>,
    /// Whether the extension may wrap the host's tools to show them.
    pub register: Option<bool>,
}

/// The settings of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Models for names that Cursor does not have.
    pub models: ModelNames,
    /// How long a run waits for the results of a client.
    pub idle_timeout: Duration,
}

/// What the environment says about the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalOptions {
    /// `NO_COLOR` is set.
    pub no_color: bool,
    /// `TERM` is `dumb`.
    pub is_dumb: bool,
    /// The locale uses UTF-8.
    pub is_utf8: bool,
    /// `COLUMNS`.
    pub columns: Option<usize>,
}

/// Returns the environment of this process. A value that is not UTF-8 counts as blank.
pub fn process_environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| {
            let value = value.into_string().unwrap_or_default();
            Some((name.into_string().ok()?, value))
        })
        .collect()
}

impl Config {
    /// Reads the settings in an environment and the configuration file it names.
    pub fn load(environment: &Environment, home: Option<PathBuf>) -> Self {
        let mut warnings = unknown_names(environment);
        let path = file_path(environment, home.as_deref());
        let text = path.as_deref().and_then(|path| {
            let is_named = set(environment, "PI_CURSOR_CONFIG").is_some();
            read_file(path, is_named, &mut warnings)
        });
        let file = match (&path, text) {
            (Some(path), Some(text)) => Some((path, file::parse(path, &text, &mut warnings))),
            _ => None,
        };
        let (file, file_values) = match file {
            Some((path, values)) => (Some(path.clone()), values),
            None => (None, FileValues::new()),
        };
        let values = Values::new(environment, file_values);
        let mut reader = SettingReader {
            values: &values,
            warnings,
        };
        let secret = |name: &str| {
            let value = environment.get(name).filter(|value| !value.is_empty());
            value.map(|value| SecretString::from(value.as_str()))
        };
        let state_dir = match values.get(state_dir::STATE_DIR) {
            Some(chosen) => std::path::absolute(chosen).ok(),
            None => xdg_dir(environment, "XDG_STATE_HOME")
                .map(|state| state.join(state_dir::NAME))
                .or_else(|| home.as_deref().map(state_dir::default_in)),
        };
        let mut client = client(
            &mut reader,
            secret("CURSOR_API_KEY"),
            home.clone(),
            state_dir.clone(),
        );
        client.access_token = secret("CURSOR_ACCESS_TOKEN");
        if reader.switch("PI_CURSOR_USE_CLI_LOGIN") {
            client.cli_logins = cli_logins(environment, home.as_deref());
        }
        client.keyring.seals_logins = reader.switch("PI_CURSOR_KEYRING");
        client.keyring.environment = keyring_environment(environment);
        let secret_paths = SecretPaths {
            state: state_dir.clone(),
            agent: set(environment, "PI_CODING_AGENT_DIR").map(str::to_owned),
            config: path,
        };
        let turn = turn(
            &mut reader,
            secret_paths,
            home.clone(),
            set(environment, "SHELL").map(PathBuf::from),
        );
        let model_cache = model_cache(&mut reader, state_dir.as_deref());
        let cards = CardOptions {
            display: reader.switch_or_auto("PI_CURSOR_NATIVE_TOOL_DISPLAY"),
            register: reader.switch_or_auto("PI_CURSOR_REGISTER_NATIVE_TOOLS"),
        };
        let debug_log = debug_log(&mut reader, state_dir.as_deref());
        let gateway = gateway(&mut reader);
        let warnings = reader.warnings;
        Self {
            client,
            turn,
            model_cache,
            cards,
            debug_log,
            gateway_token: secret("CURSOR_SIDECAR_GATEWAY_TOKEN"),
            gateway,
            log_filter: environment.get("RUST_LOG").cloned(),
            terminal: terminal(environment),
            home,
            state_dir,
            file,
            warnings,
            values,
        }
    }

    /// Logs the warnings on stderr and in the debug log.
    pub fn log_warnings(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }

    /// Returns every setting with its effective value.
    pub fn effective(&self) -> impl Iterator<Item = (&'static Setting, EffectiveValue)> {
        SETTINGS.iter().map(|setting| {
            let value = EffectiveValue::of(setting, &self.values, &self.warnings);
            (setting, value)
        })
    }
}

/// Returns a variable unless it is blank.
fn set<'e>(environment: &'e Environment, name: &str) -> Option<&'e str> {
    let value = environment.get(name)?;
    (!value.trim().is_empty()).then_some(value)
}

/// Returns a directory of the XDG specification, which requires that relative paths are ignored.
fn xdg_dir(environment: &Environment, name: &str) -> Option<PathBuf> {
    let path = set(environment, name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// Returns the path of the configuration file, which may not exist.
fn file_path(environment: &Environment, home: Option<&Path>) -> Option<PathBuf> {
    if let Some(chosen) = set(environment, "PI_CURSOR_CONFIG") {
        return std::path::absolute(chosen).ok();
    }
    let base = xdg_dir(environment, "XDG_CONFIG_HOME");
    let base = base.or_else(|| Some(home?.join(".config")))?;
    Some(base.join("cursor-sidecar/config.toml"))
}

/// Returns the text of the configuration file; `None` if there is none, with a warning if the user
/// named it.
fn read_file(path: &Path, is_named: bool, warnings: &mut Vec<Warning>) -> Option<String> {
    let problem = match file::read(path) {
        Ok(Some(text)) => return Some(text),
        Ok(None) if is_named => "it does not exist".into(),
        Ok(None) => return None,
        Err(error) => error.to_string(),
    };
    let file = path.to_owned();
    warnings.push(SettingProblem::Unreadable { file, problem }.into());
    None
}

/// Returns warnings for `PI_CURSOR_` names that are not settings.
fn unknown_names(environment: &Environment) -> Vec<Warning> {
    let names = environment.keys().filter_map(|name| {
        let rest = name.strip_prefix(settings::PREFIX)?;
        settings::find(name).is_none().then_some((name, rest))
    });
    names
        .map(|(name, rest)| {
            let nearest = settings::nearest(rest).map(|setting| setting.name.to_owned());
            let name = name.clone();
            SettingProblem::UnknownName { name, nearest }.into()
        })
        .collect()
}

fn client(
    reader: &mut SettingReader<'_>,
    api_key: Option<SecretString>,
    home: Option<PathBuf>,
    state_dir: Option<PathBuf>,
) -> ClientOptions {
    let http_version = reader.choice(
        "PI_CURSOR_HTTP",
        &[
            ("auto", Preference::Auto),
            ("1", Preference::Always(HttpVersion::Http1)),
            ("2", Preference::Always(HttpVersion::Http2)),
        ],
    );
    let default = Identity::default();
    let identity = Identity {
        client_type: header(reader, "PI_CURSOR_CLIENT_TYPE").unwrap_or(default.client_type),
        client_version: header(reader, "PI_CURSOR_CLIENT_VERSION")
            .unwrap_or(default.client_version),
        is_ghost: reader.switch("PI_CURSOR_GHOST_MODE"),
        sends_checksum: reader.switch("PI_CURSOR_CHECKSUM"),
    };
    ClientOptions {
        endpoints: EndpointOptions {
            pi_agent: reader.text("PI_CURSOR_AGENT_URL"),
            agent: reader.text("CURSOR_AGENT_URL"),
            backend: reader.text("CURSOR_BACKEND_URL"),
            website: reader.text("CURSOR_WEBSITE_URL"),
            home,
        },
        trust: TrustRoots {
            bundle: reader.path("SSL_CERT_FILE"),
            extra: reader.path("NODE_EXTRA_CA_CERTS"),
        },
        identity,
        http_version: http_version.unwrap_or_default(),
        api_key,
        access_token: None,
        cli_logins: Vec::new(),
        state_dir,
        keyring: Keyring::default(),
    }
}

/// Returns what a client of the keyring needs of the environment; no other variable, because some
/// are secrets.
fn keyring_environment(environment: &Environment) -> Vec<(String, String)> {
    let entries = environment.iter();
    let entries = entries.filter(|(name, _)| KEYRING_VARIABLES.contains(&name.as_str()));
    entries
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the files that may contain the login of the Cursor CLI.
fn cli_logins(environment: &Environment, home: Option<&Path>) -> Vec<PathBuf> {
    let configured = xdg_dir(environment, "XDG_CONFIG_HOME");
    let configured = configured.or_else(|| Some(home?.join(".config")));
    let in_home = home.map(|home| home.join(".cursor/auth.json"));
    let configured = configured.map(|folder| folder.join("cursor/auth.json"));
    configured.into_iter().chain(in_home).collect()
}

/// Reads a setting that is a header value of visible characters.
fn header(reader: &mut SettingReader<'_>, name: &str) -> Option<HeaderValue> {
    let text = reader.text(name)?;
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::from_str(&text).ok().filter(|_| is_visible);
    if value.is_none() {
        reader.invalid(name, &text);
    }
    value
}

fn turn(
    reader: &mut SettingReader<'_>,
    secret_paths: SecretPaths,
    home: Option<PathBuf>,
    shell: Option<PathBuf>,
) -> Policy {
    let native = native_tools::policy(reader, secret_paths);
    let cursor = native_tools::cursor_settings(reader);
    let offers_tools = reader.switch("PI_CURSOR_PI_TOOL_BRIDGE");
    let asks_questions = reader.switch("PI_CURSOR_ASK_QUESTION");
    let overlapping = if reader.switch("PI_CURSOR_EXPOSE_BUILTIN_TOOLS") {
        BuiltinTools::Offered
    } else {
        BuiltinTools::Hidden
    };
    let is_logged = reader.switch("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG");
    let diagnostics = match reader.path("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE") {
        _ if !is_logged => CallLogTarget::Off,
        None => CallLogTarget::Stderr,
        Some(file) => CallLogTarget::StderrAnd(file),
    };
    for name in parse::TOOL_TIMEOUT.iter().chain([&parse::CALL_TIMEOUT]) {
        reader.number(name);
    }
    let default = Policy::default();
    let park = match reader.number("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS") {
        None => default.park,
        Some(0) => LONGEST_PARK,
        Some(ms) => Duration::from_millis(ms),
    };
    let most_parked = reader.number("PI_CURSOR_MAX_PARKED_RUNS");
    // 0 means no limit.
    let idle_limit = |given: Option<u64>, default| match given {
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
        None => default,
    };
    let patience = IdleLimits {
        first: idle_limit(
            reader.number("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS"),
            default.patience.first,
        ),
        resumed: idle_limit(
            reader.number("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS"),
            default.patience.resumed,
        ),
    };
    let idle_retries = reader.number("PI_CURSOR_STREAM_IDLE_MAX_RETRIES");
    Policy {
        offers_tools,
        asks_questions,
        overlapping,
        native,
        cursor,
        call_deadline: parse::bridge_call_timeout(reader.values),
        park,
        most_parked: most_parked
            .and_then(|runs| usize::try_from(runs).ok())
            .unwrap_or(default.most_parked),
        patience,
        idle_retries: idle_retries
            .and_then(|retries| u32::try_from(retries).ok())
            .unwrap_or(RETRIES),
        diagnostics,
        home,
        shell,
    }
}

fn gateway(reader: &mut SettingReader<'_>) -> GatewayOptions {
    const MODELS: &str = "PI_CURSOR_GATEWAY_MODELS";
    const IDLE: Duration = Duration::from_secs(15 * 60);
    let text = reader.text(MODELS).unwrap_or_default();
    let models = ModelNames::parse(&text);
    if models.is_none() {
        reader.invalid(MODELS, &text);
    }
    GatewayOptions {
        models: models.unwrap_or_default(),
        idle_timeout: match reader.number("PI_CURSOR_GATEWAY_IDLE_TIMEOUT_MS") {
            None => IDLE,
            Some(0) => LONGEST_PARK,
            Some(ms) => Duration::from_millis(ms),
        },
    }
}

fn model_cache(reader: &mut SettingReader<'_>, state_dir: Option<&Path>) -> CachePolicy {
    const TTL: &str = "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS";
    let ttl = reader.text(TTL);
    if let Some(text) = &ttl
        && parse::leading_whole(text).is_none()
    {
        reader.invalid(TTL, text);
    }
    let is_off = reader.switch("PI_CURSOR_SDK_DISABLE_MODEL_CACHE");
    match state_dir {
        Some(dir) if !is_off => CachePolicy::On {
            dir: dir.to_owned(),
            fresh_for: parse::model_cache_ttl(ttl.as_deref()),
        },
        _ => CachePolicy::Off,
    }
}

fn debug_log(reader: &mut SettingReader<'_>, state_dir: Option<&Path>) -> LogDestination {
    let file = reader.path("PI_CURSOR_PROVIDER_DEBUG_FILE");
    // Naming a file enables the log.
    let is_on = reader.optional_switch("PI_CURSOR_PROVIDER_DEBUG");
    if !is_on.unwrap_or(file.is_some()) {
        return LogDestination::Off;
    }
    match (file, state_dir) {
        (Some(file), _) => LogDestination::File(file),
        (None, Some(state_dir)) => LogDestination::NewFileIn(log_file::log_dir(state_dir)),
        (None, None) => LogDestination::NoStateDir,
    }
}

fn terminal(environment: &Environment) -> TerminalOptions {
    let given = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    // As the C library reads them: the first that is set decides.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(given);
    let locale = locale.map(|locale| locale.to_ascii_lowercase());
    TerminalOptions {
        no_color: given("NO_COLOR").is_some(),
        is_dumb: given("TERM").is_some_and(|term| term == "dumb"),
        is_utf8: locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8")),
        columns: given("COLUMNS").and_then(|columns| columns.parse().ok()),
    }
}

#[cfg(test)]
mod tests;
