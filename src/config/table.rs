//! The settings, in the order of `docs/settings.md`. A new setting is added here and read in
//! [`Config::load`](super::Config::load).

use super::settings::{MAX_MS, Setting, setting};

/// All settings.
pub const SETTINGS: &[Setting] = &[
    setting(
        "CURSOR_API_KEY",
        "",
        "a key",
        "The Cursor API key. Never logged, never passed to other programs.",
    )
    .secret(),
    setting(
        "CURSOR_ACCESS_TOKEN",
        "",
        "a token",
        "A Cursor access token, used if CURSOR_API_KEY is not set. It cannot be renewed. Never logged, never passed to other programs.",
    )
    .secret(),
    setting(
        "PI_CURSOR_USE_CLI_LOGIN",
        "off",
        "off, on",
        "Use the login of the Cursor CLI if there is no other key or login; see docs/account.md. The CLI's file is only read.",
    ),
    setting(
        "PI_CURSOR_KEYRING",
        "off",
        "off, on",
        "Seal the login of `cursor-sidecar login` with a key in the keyring of the desktop (Linux: Secret Service, by `secret-tool`); see docs/account.md.",
    ),
    setting(
        "CURSOR_SIDECAR_GATEWAY_TOKEN",
        "",
        "16 or more visible characters",
        "The token that clients of the gateway must send. By default, a token is generated at the first start and kept in a private file.",
    )
    .secret(),
    setting(
        "PI_CURSOR_GATEWAY_MODELS",
        "",
        "name=model or name*=model; several with commas",
        "Which models clients of the gateway get for names that Cursor does not have: `gpt-4o=gpt-5.5,claude-*=composer-2,*=auto`. The first match counts; names of other providers that are not listed stand for the newest model of the same family; see docs/gateway.md.",
    ),
    setting(
        "PI_CURSOR_GATEWAY_IDLE_TIMEOUT_MS",
        "900000",
        "milliseconds, at least 1000; 0: no limit",
        "How long a run waits for the tool results of a client of the gateway. Later results are sent to a new run.",
    )
    .number_or_zero(1_000, MAX_MS),
    setting(
        "PI_CURSOR_AGENT_URL",
        "",
        "https URL, or http to this machine",
        "Server for runs. Takes precedence over every other address.",
    )
    .environment_only(),
    setting(
        "CURSOR_AGENT_URL",
        "",
        "https URL, or http to this machine",
        "Server for runs if PI_CURSOR_AGENT_URL is not set.",
    ),
    setting(
        "CURSOR_BACKEND_URL",
        "https://api2.cursor.sh",
        "https URL, or http to this machine",
        "Server for key exchange, configuration and the model list. If it is set and no agent URL is, also the server for runs.",
    ),
    setting(
        "CURSOR_WEBSITE_URL",
        "https://cursor.com",
        "https URL, or http to this machine",
        "Website for logging in with a browser.",
    ),
    setting(
        "PI_CURSOR_HTTP",
        "auto",
        "auto, 1, 2",
        "HTTP version for runs. auto: as the server advises, otherwise HTTP/2 over TLS; falls back to HTTP/1.1 if HTTP/2 does not work.",
    ),
    setting(
        "PI_CURSOR_CLIENT_TYPE",
        "sdk",
        "a word",
        "The client type sent to Cursor (x-cursor-client-type).",
    ),
    setting(
        "PI_CURSOR_CLIENT_VERSION",
        "sdk-1.0.32",
        "a word",
        "The client version sent to Cursor (x-cursor-client-version).",
    ),
    setting(
        "PI_CURSOR_GHOST_MODE",
        "true",
        "true, false",
        "Ask Cursor to store nothing of what is sent (x-ghost-mode).",
    ),
    setting(
        "PI_CURSOR_CHECKSUM",
        "off",
        "off, on",
        "Send x-cursor-checksum. The official SDK does not send it.",
    ),
    setting(
        "PI_CURSOR_SIDECAR",
        "",
        "a path",
        "The program that pi's extension starts. By default, the one installed with the extension.",
    )
    .environment_only(),
    setting(
        "PI_CURSOR_CONFIG",
        "",
        "file",
        "The configuration file. By default, cursor-sidecar/config.toml in the platform's configuration directory ($XDG_CONFIG_HOME or ~/.config).",
    )
    .environment_only(),
    setting(
        "PI_CURSOR_STATE_DIR",
        "",
        "a folder",
        "Directory for persistent state. By default, cursor-sidecar in the platform's state directory.",
    ),
    setting(
        "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS",
        "86400000",
        "0, 1, 2 … milliseconds",
        "Use a cached model list for this long before asking Cursor again. 0: always ask.",
    ),
    setting(
        "PI_CURSOR_SDK_DISABLE_MODEL_CACHE",
        "off",
        "off, on",
        "Do not store the model list on disk.",
    ),
    setting(
        "PI_CURSOR_PROVIDER_DEBUG",
        "0",
        "0, 1",
        "Write a debug log; see docs/debugging.md.",
    ),
    setting(
        "PI_CURSOR_PROVIDER_DEBUG_FILE",
        "",
        "file",
        "Write the debug log to this file instead of a new file in the state directory. Enables the log.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE",
        "1",
        "0, 1",
        "Offer the host's tools to Cursor's agent.",
    ),
    setting(
        "PI_CURSOR_ASK_QUESTION",
        "1",
        "0, 1",
        "Let the model ask the user questions. Requires that the host's tools are offered.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG",
        "0",
        "0, 1",
        "Log calls of the host's tools on stderr, in lines that start with [pi-cursor-sdk:bridge]: names, ids and counts, never arguments or results.",
    ),
    setting(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
        "",
        "file",
        "Also append the lines of PI_CURSOR_PI_TOOL_BRIDGE_DEBUG to this file. Does not enable them.",
    ),
    setting(
        "PI_CURSOR_EXPOSE_BUILTIN_TOOLS",
        "0",
        "0, 1",
        "Also offer the host's read, bash, write, edit, grep, find and ls, although Cursor has its own.",
    ),
    setting(
        "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
        "3600000",
        "milliseconds, at least 60000",
        "Maximum duration of a tool call.",
    )
    .number(60_000, MAX_MS),
    setting(
        "PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS",
        "3600",
        "seconds, at least 60",
        "PI_CURSOR_MCP_TOOL_TIMEOUT_MS in seconds. Ignored if that is set.",
    )
    .number(60, MAX_MS / 1000),
    setting(
        "PI_CURSOR_SETTING_SOURCES",
        "all",
        "all, none, or some of project, user, team, mdm, plugins with commas",
        "Which Cursor settings are used: rules, skills, MCP servers, hooks; see docs/cursor-settings.md. team has no effect, because it is not stored in files.",
    ),
    setting(
        "PI_CURSOR_TRUST_PROJECT",
        "0",
        "0, 1, or folders with colons",
        "Run commands that a project's own Cursor settings name (MCP servers, hooks): never, always, or in these folders. Accepts the files as they are when first seen; later changes need consent; see docs/cursor-settings.md.",
    ),
    setting(
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS",
        "10000",
        "milliseconds, 1000 to 60000",
        "Maximum time to connect to an MCP server of the user. Turns do not wait for it.",
    )
    .number(1_000, 60_000),
    setting(
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS",
        "10",
        "seconds, 1 to 60",
        "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS in seconds. Ignored if that is set.",
    )
    .number(1, 60),
    setting(
        "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS",
        "",
        "milliseconds, no more than any tool may take",
        "Maximum duration of a host tool call, if shorter than PI_CURSOR_MCP_TOOL_TIMEOUT_MS.",
    )
    .number(1, MAX_MS),
    setting(
        "PI_CURSOR_ACTIVE_BRIDGE_TTL_MS",
        "3600000",
        "milliseconds, at least 1000; 0: no limit",
        "How long a parked run waits for the host's tool results.",
    )
    .number_or_zero(1_000, MAX_MS),
    setting(
        "PI_CURSOR_MAX_PARKED_RUNS",
        "512",
        "1 to 4096",
        "Maximum number of parked runs. Beyond it, the run that has waited longest is released, and its tool results are sent to a new run.",
    )
    .number(1, 4096),
    setting(
        "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS",
        "120000",
        "milliseconds, at least 1000; 0: no limit",
        "Restart the run if Cursor sends no output for this long.",
    )
    .number_or_zero(1_000, MAX_MS),
    setting(
        "PI_CURSOR_STREAM_IDLE_MAX_RETRIES",
        "3",
        "0 to 10",
        "How many times a run is restarted because of PI_CURSOR_STREAM_IDLE_TIMEOUT_MS.",
    )
    .number_or_zero(0, 10),
    setting(
        "PI_CURSOR_RESUME_IDLE_TIMEOUT_MS",
        "240000",
        "milliseconds, at least 1000; 0: no limit",
        "Replaces PI_CURSOR_STREAM_IDLE_TIMEOUT_MS after the host has returned tool results.",
    )
    .number_or_zero(1_000, MAX_MS),
    setting(
        "PI_CURSOR_NATIVE_TOOL_DISPLAY",
        "auto",
        "auto, 0, 1",
        "Show Cursor's native tool calls as tool cards in the host instead of lines of text; see docs/cards.md. auto: on, unless the host prints a single answer.",
    ),
    setting(
        "PI_CURSOR_REGISTER_NATIVE_TOOLS",
        "1",
        "0, 1",
        "Let the extension wrap the host's own tools to show tool cards. 0: native tool calls are shown as lines of text.",
    ),
    setting(
        "PI_CURSOR_NATIVE_TOOLS",
        "",
        "local, host, ask, off; of single tools tool=local, tool=host, tool=ask, tool=off; several with commas",
        "Who executes Cursor's native tools: `local` this process, `host` the host's own tools, `ask` this process after the host gives permission, `off` no one. If unset, the host decides; pi reads and searches locally and runs commands, writes, edits and deletes with its own tools. `local,shell=host,delete=off` leaves commands to the host and disables deleting; PI_CURSOR_NATIVE_TOOLS_DENY lists the names of the tools. A tool that is disabled in the host stays disabled.",
    ),
    setting(
        "PI_CURSOR_NATIVE_TOOLS_DENY",
        "",
        "read, ls, grep, write, delete, shell, fetch, git_diff, diagnostics; several with commas",
        "Native tools that are always refused, regardless of PI_CURSOR_NATIVE_TOOLS.",
    ),
    setting(
        "PI_CURSOR_ALLOW_OUTSIDE_WRITES",
        "off",
        "off, on",
        "Allow native tools to write and delete files outside the workspace. Does not restrict commands.",
    ),
    setting(
        "PI_CURSOR_PROTECTED_PATHS",
        "default",
        "default, off, globs to add, !globs to allow; several with commas",
        "Paths that native tools must not write, edit or delete, regardless of who executes them, because other programs execute what is written there. default: `.git` (also git folders of other names), `.pi`, `.husky`, `.envrc`, `.mcp.json`, `.cursor/*.json`, `.claude/settings*`, `.vscode/tasks.json`, `.vscode/settings.json` at any depth, in any case and through links, and dotfiles of the home directory unless the workspace is inside one. Globs have the syntax of `.gitignore`, relative to the workspace, or to the home directory after `~/`: `infra/**,!.vscode/settings.json` protects one more folder and one file less; `off` drops everything before it. `.cursor/mcp.json`, `.cursor/hooks.json` and `.cursorignore` stay protected. Does not restrict commands.",
    ),
    setting(
        "PI_CURSOR_ALLOW_PRIVATE_FETCH",
        "off",
        "off, on",
        "Allow Cursor's fetch tool to access this machine and private networks.",
    ),
    setting(
        "HTTPS_PROXY",
        "",
        "URL",
        "Proxy for https hosts; NO_PROXY lists exceptions.",
    )
    .environment_only(),
    setting(
        "SSL_CERT_FILE",
        "",
        "PEM file",
        "Certificates to trust instead of the system's.",
    )
    .environment_only(),
    setting(
        "NODE_EXTRA_CA_CERTS",
        "",
        "PEM file",
        "Certificates to trust in addition to the system's.",
    )
    .environment_only(),
];
