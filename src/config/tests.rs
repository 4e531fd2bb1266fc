//! Tests of [`Config::load`].

use super::settings::{SETTINGS, Setting};
use super::*;
use agent_tools::cursor_config::sources::SourceFilter;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    let pairs = pairs.iter();
    pairs
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn load(pairs: &[(&str, &str)]) -> Config {
    Config::load(&environment(pairs), None)
}

fn messages(config: &Config) -> Vec<String> {
    config.warnings.iter().map(ToString::to_string).collect()
}

/// The file that `XDG_CONFIG_HOME` contains, and the configuration it and the environment give.
fn load_with_file(text: &str, pairs: &[(&str, &str)]) -> (tempfile::TempDir, Config) {
    let base = tempfile::tempdir().unwrap();
    let file = base.path().join("cursor-sidecar/config.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    let mut environment = environment(pairs);
    environment.insert(
        "XDG_CONFIG_HOME".into(),
        base.path().to_str().unwrap().into(),
    );
    let config = Config::load(&environment, None);
    (base, config)
}

fn shown(config: &Config, name: &str) -> String {
    let mut settings = config.effective();
    let (_, value) = settings.find(|(setting, _)| setting.name == name).unwrap();
    format!("{} ({:?})", value.value, value.source)
}

#[test]
fn without_settings_everything_is_the_default() {
    let config = load(&[]);
    assert_eq!(config.turn, Policy::default());
    assert_eq!(config.client.identity, Identity::default());
    assert_eq!(config.client.http_version, Preference::Auto);
    assert_eq!(config.client.endpoints, EndpointOptions::default());
    assert_eq!(config.cards, CardOptions::default());
    assert_eq!(config.debug_log, LogDestination::Off);
    assert_eq!(config.model_cache, CachePolicy::Off);
    assert_eq!((config.state_dir, config.file), (None, None));
    assert_eq!(config.warnings, []);
}

/// The table's defaults are what the settings page and `doctor` display.
#[test]
fn the_number_in_the_table_is_the_default_that_is_used() {
    let shown = |pairs: &[(&str, &str)]| {
        let config = load(pairs);
        assert_eq!(config.warnings, [], "{pairs:?}");
        let values = Values::default();
        format!("{:#?}", Config { values, ..config })
    };
    let nothing_set = shown(&[]);
    // Of the others, some are kept as not set, because the host decides then.
    let has_value = |setting: &&Setting| setting.number.is_some() && !setting.default.is_empty();
    for setting in SETTINGS.iter().filter(has_value) {
        let set = shown(&[(setting.name, setting.default)]);
        assert_eq!(set, nothing_set, "{}", setting.name);
    }
}

#[test]
fn settings_are_used_and_invalid_ones_are_reported() {
    let config = load(&[
        ("PI_CURSOR_PI_TOOL_BRIDGE", "0"),
        ("PI_CURSOR_ASK_QUESTION", "off"),
        ("PI_CURSOR_EXPOSE_BUILTIN_TOOLS", "yes"),
        ("PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS", "120"),
        ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "5000"),
        ("PI_CURSOR_MAX_PARKED_RUNS", "99999"),
        ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "0"),
        ("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS", "5"),
        ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "12"),
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1"),
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE", "bridge.jsonl"),
        ("SHELL", "/bin/zsh"),
    ]);
    assert_eq!(config.warnings, []);
    let expected = Policy {
        offers_tools: false,
        asks_questions: false,
        overlapping: BuiltinTools::Offered,
        cursor: SourceFilter {
            tool_timeout: Duration::from_secs(120),
            ..SourceFilter::default()
        },
        call_deadline: Duration::from_secs(120),
        park: Duration::from_secs(5),
        most_parked: 4096,
        patience: IdleLimits {
            first: None,
            resumed: Some(Duration::from_secs(1)),
        },
        idle_retries: 10,
        diagnostics: CallLogTarget::StderrAnd("bridge.jsonl".into()),
        shell: Some("/bin/zsh".into()),
        ..Policy::default()
    };
    assert_eq!(config.turn, expected);
    let config = load(&[
        ("PI_CURSOR_PI_TOOL_BRIDGE", "perhaps"),
        ("PI_CURSOR_MCP_TOOL_TIMEOUT_MS", "long"),
        ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "0"),
        ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "-1"),
        ("PI_CURSOR_CLIENT_TYPE", "two words"),
    ]);
    let turn = &config.turn;
    assert_eq!((turn.offers_tools, turn.park), (true, LONGEST_PARK));
    assert_eq!(turn.idle_retries, RETRIES);
    assert_eq!(config.client.identity, Identity::default());
    assert_eq!(config.warnings.len(), 4, "{:?}", messages(&config));
}

#[test]
fn unknown_names_cause_warnings_with_the_most_similar_name() {
    let config = load(&[
        ("PI_CURSOR_HTPP", "2"),
        ("PI_CURSOR_HTTP", "2"),
        ("PI_CURSOR_ZZZ", ""),
        ("CURSOR_ELSE", "1"),
        ("PATH", "/bin"),
    ]);
    insta::assert_snapshot!(messages(&config).join("\n"), @"
    PI_CURSOR_HTPP is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them; did you mean PI_CURSOR_HTTP?
    PI_CURSOR_ZZZ is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them
    ");
}

#[test]
fn the_environment_takes_precedence_over_the_file() {
    let text =
        "http = 1\nclient_type = 'file'\nmcp_tool_timeout_ms = 90_000\nmax_parked_runs = 7\n";
    let (_base, config) = load_with_file(
        text,
        &[
            ("PI_CURSOR_HTTP", "2"),
            ("PI_CURSOR_CLIENT_TYPE", " "),
            ("PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS", "70"),
        ],
    );
    assert_eq!(config.warnings, []);
    let names = [
        "PI_CURSOR_HTTP",
        "PI_CURSOR_CLIENT_TYPE",
        "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
        "PI_CURSOR_MAX_PARKED_RUNS",
        "PI_CURSOR_STREAM_IDLE_MAX_RETRIES",
    ];
    let shown = names.map(|name| shown(&config, name)).join("\n");
    insta::assert_snapshot!(shown, @"
    2 (Environment)
    file (File)
    70000 (Environment)
    7 (File)
    3 (Default)
    ");
    let always = Preference::Always(HttpVersion::Http2);
    assert_eq!(config.client.http_version, always);
    assert_eq!(config.client.identity.client_type, "file");
    assert_eq!(config.turn.most_parked, 7);
    assert_eq!(config.turn.cursor.tool_timeout, Duration::from_secs(70));
    assert_eq!(config.turn.native.secret_paths.config, config.file);
}

#[test]
fn an_invalid_value_in_the_file_is_reported_with_its_line() {
    let (base, config) = load_with_file("\nhttp = 3\napi_key = 'crsr_file'\n", &[]);
    let messages = messages(&config).join("\n");
    let messages = messages.replace(base.path().to_str().unwrap(), "");
    insta::assert_snapshot!(messages, @r#"
    /cursor-sidecar/config.toml:3: "api_key" is a secret and is not read from this file; set CURSOR_API_KEY in the environment, and remove it here
    /cursor-sidecar/config.toml:2: PI_CURSOR_HTTP: "3" is not one of auto, 1, 2; using auto
    "#);
    assert!(config.client.api_key.is_none());
    assert!(!format!("{config:?}").contains("crsr_file"));
}

#[test]
fn a_file_that_the_user_names_must_exist() {
    let config = load(&[("PI_CURSOR_CONFIG", "/nowhere/config.toml")]);
    insta::assert_snapshot!(messages(&config).join("\n"), @"cannot read the configuration file /nowhere/config.toml: it does not exist; it is ignored");
    let config = load(&[("XDG_CONFIG_HOME", "/nowhere")]);
    assert_eq!(config.warnings, []);
}

#[test]
fn secrets_are_not_shown() {
    let config = load(&[
        ("CURSOR_API_KEY", "crsr_mine"),
        ("CURSOR_SIDECAR_GATEWAY_TOKEN", "0123456789abcdef"),
        ("HTTPS_PROXY", "http://me:word@host"),
    ]);
    let settings: Vec<_> = config.effective().map(|(_, value)| value).collect();
    let text = format!("{settings:?} {:?}", config.client);
    for secret in ["crsr_mine", "0123456789", "word"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(shown(&config, "CURSOR_API_KEY"), "(set) (Environment)");
}

#[test]
fn the_state_dir_is_the_setting_or_the_platforms() {
    let dir = |pairs: &[(&str, &str)], home: Option<&str>| {
        let config = Config::load(&environment(pairs), home.map(PathBuf::from));
        let dir = config.state_dir?;
        Some(dir.display().to_string())
    };
    let setting = ("PI_CURSOR_STATE_DIR", "/s");
    let blank = ("PI_CURSOR_STATE_DIR", " ");
    let xdg = ("XDG_STATE_HOME", "/x");
    assert_eq!(dir(&[setting, xdg], Some("/h")).unwrap(), "/s");
    assert_eq!(dir(&[blank, xdg], Some("/h")).unwrap(), "/x/cursor-sidecar");
    assert_eq!(
        dir(&[("XDG_STATE_HOME", "x")], Some("/h")).unwrap(),
        "/h/.local/state/cursor-sidecar"
    );
    assert_eq!(dir(&[], None), None);
}

#[test]
fn settings_enable_the_debug_log_and_choose_its_path() {
    let log = |pairs: &[(&str, &str)]| {
        let config = load(pairs);
        (config.debug_log, config.warnings.len())
    };
    let on = ("PI_CURSOR_PROVIDER_DEBUG", "1");
    let off = ("PI_CURSOR_PROVIDER_DEBUG", "0");
    let file = ("PI_CURSOR_PROVIDER_DEBUG_FILE", "/tmp/x.jsonl");
    let state = ("PI_CURSOR_STATE_DIR", "/s");
    let at_file = LogDestination::File("/tmp/x.jsonl".into());
    let new_file = LogDestination::NewFileIn("/s/debug".into());
    assert_eq!(log(&[]), (LogDestination::Off, 0));
    assert_eq!(log(&[on]), (LogDestination::NoStateDir, 0));
    assert_eq!(log(&[on, state]), (new_file, 0));
    assert_eq!(log(&[on, state, file]), (at_file.clone(), 0));
    assert_eq!(log(&[file]), (at_file, 0));
    assert_eq!(log(&[off, file]), (LogDestination::Off, 0));
    let maybe = ("PI_CURSOR_PROVIDER_DEBUG", "maybe");
    assert_eq!(log(&[maybe]), (LogDestination::Off, 1));
}

#[test]
fn the_model_cache_needs_a_state_dir() {
    let cache = |ttl: &str, disabled: &str| {
        load(&[
            ("PI_CURSOR_SDK_MODEL_CACHE_TTL_MS", ttl),
            ("PI_CURSOR_SDK_DISABLE_MODEL_CACHE", disabled),
            ("PI_CURSOR_STATE_DIR", "/state"),
        ])
    };
    let config = cache("5", "yes");
    assert_eq!(config.model_cache, CachePolicy::Off);
    assert_eq!(config.warnings, []);
    let config = cache("soon", "perhaps");
    let expected = CachePolicy::On {
        dir: "/state".into(),
        fresh_for: Duration::from_secs(24 * 60 * 60),
    };
    assert_eq!(config.model_cache, expected);
    insta::assert_snapshot!(messages(&config).join("\n"), @r#"
    PI_CURSOR_SDK_MODEL_CACHE_TTL_MS: "soon" is not one of 0, 1, 2 … milliseconds; using 86400000
    PI_CURSOR_SDK_DISABLE_MODEL_CACHE: "perhaps" is not one of off, on; using off
    "#);
}

#[test]
fn an_invalid_value_warns_once_and_the_default_is_used() {
    let read = |value: &str| {
        let config = load(&[("PI_CURSOR_HTTP", value)]);
        let warnings = messages(&config).join("\n");
        (config.client.http_version, warnings)
    };
    let always = Preference::Always(HttpVersion::Http2);
    assert_eq!(read(" 2 "), (always, String::new()));
    assert_eq!(read(""), (Preference::Auto, String::new()));
    let (version, warnings) = read("3");
    assert_eq!(version, Preference::Auto);
    insta::assert_snapshot!(warnings, @r#"PI_CURSOR_HTTP: "3" is not one of auto, 1, 2; using auto"#);
}
