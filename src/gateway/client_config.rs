//! `gateway --print-config`: the settings with which a client uses the gateway, ready to paste.
//! They name the file of the token, never the token.

use std::io::Write as _;

use clap::ValueEnum as _;

use super::GatewayError;
use super::token::{TOKEN, Token};
use crate::config::Config;

/// A client that can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ClientKind {
    /// Aider.
    Aider,
    /// Anthropic's libraries.
    Anthropic,
    /// Claude Code.
    Claude,
    /// Cline.
    Cline,
    /// Codex CLI.
    Codex,
    /// Continue.
    Continue,
    /// curl.
    Curl,
    /// LiteLLM.
    Litellm,
    /// OpenAI's libraries.
    Openai,
    /// opencode.
    Opencode,
    /// Qwen Code.
    Qwen,
    /// Zed.
    Zed,
}

/// The variable of the token in printed settings.
const VARIABLE: &str = "CURSOR_GATEWAY_TOKEN";

/// Prints the settings of a client.
pub(super) fn print(client: ClientKind, port: u16, config: &Config) -> Result<(), GatewayError> {
    if port == 0 {
        return Err(GatewayError::NoPort);
    }
    let token = Token::find(config.gateway_token.as_ref(), config.state_dir.as_deref())?;
    let text = settings(client, port, &TokenPlace::of(&token));
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Returns the names and settings of all clients.
pub(super) fn all(port: u16, token: &Token) -> Vec<serde_json::Value> {
    let place = TokenPlace::of(token);
    let clients = ClientKind::value_variants().iter().filter_map(|client| {
        let value = client.to_possible_value()?;
        let text = settings(*client, port, &place);
        Some(serde_json::json!({"name": value.get_name(), "text": text}))
    });
    clients.collect()
}

/// How settings refer to the token.
struct TokenPlace {
    /// In a shell.
    shell: String,
    /// In opencode's configuration.
    opencode: String,
}

impl TokenPlace {
    fn of(token: &Token) -> Self {
        match &token.file {
            Some(file) => {
                let file = file.display().to_string();
                Self {
                    shell: format!("\"$(cat '{}')\"", file.replace('\'', r"'\''")),
                    opencode: format!("{{file:{file}}}"),
                }
            }
            None => Self {
                shell: format!("\"${TOKEN}\""),
                opencode: format!("{{env:{TOKEN}}}"),
            },
        }
    }
}

fn settings(client: ClientKind, port: u16, token: &TokenPlace) -> String {
    let root = format!("http://127.0.0.1:{port}");
    let url = format!("{root}/v1");
    let shell = &token.shell;
    match client {
        ClientKind::Opencode => {
            let key = serde_json::Value::from(token.opencode.as_str());
            format!(
                r#"# ~/.config/opencode/opencode.json; then: opencode --model cursor/auto
{{
  "$schema": "https://opencode.ai/config.json",
  "provider": {{
    "cursor": {{
      "npm": "@ai-sdk/openai-compatible",
      "name": "Cursor",
      "options": {{ "baseURL": "{url}", "apiKey": {key} }},
      "models": {{ "auto": {{}}, "composer-2.5": {{}} }}
    }}
  }}
}}
"#
            )
        }
        ClientKind::Codex => format!(
            r#"# ~/.codex/config.toml
model = "auto"
model_provider = "cursor"

[model_providers.cursor]
name = "Cursor"
base_url = "{url}"
env_key = "{VARIABLE}"
wire_api = "responses"

# Then, in the shell:
#   export {VARIABLE}={shell}
#   codex
"#
        ),
        ClientKind::Claude => format!(
            "export ANTHROPIC_BASE_URL={root}\nexport ANTHROPIC_AUTH_TOKEN={shell}\nexport ANTHROPIC_MODEL=auto\nexport ANTHROPIC_DEFAULT_HAIKU_MODEL=auto\nclaude\n"
        ),
        ClientKind::Anthropic => {
            format!("export ANTHROPIC_BASE_URL={root}\nexport ANTHROPIC_API_KEY={shell}\n")
        }
        ClientKind::Openai => {
            format!("export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={shell}\n")
        }
        ClientKind::Aider => format!(
            "export OPENAI_API_BASE={url}\nexport OPENAI_API_KEY={shell}\naider --model openai/auto\n"
        ),
        ClientKind::Qwen => format!(
            "export OPENAI_BASE_URL={url}\nexport OPENAI_API_KEY={shell}\nexport OPENAI_MODEL=auto\nqwen\n"
        ),
        ClientKind::Cline => {
            format!("cline auth -p openai-compatible -b {url} -m auto -k {shell}\n")
        }
        ClientKind::Continue => format!(
            r#"# ~/.continue/config.yaml; put the token into ~/.continue/.env:
#   echo {VARIABLE}={shell} >> ~/.continue/.env
name: Cursor
version: 1.0.0
schema: v1
models:
  - name: Cursor
    provider: openai
    model: auto
    apiBase: {url}
    apiKey: ${{{{ secrets.{VARIABLE} }}}}
    roles: [chat, edit, apply]
    capabilities: [tool_use, image_input]
"#
        ),
        ClientKind::Zed => format!(
            r#"// Zed's settings.json; Zed asks for the token: {shell}
{{
  "language_models": {{
    "openai_compatible": {{
      "Cursor": {{
        "api_url": "{url}",
        "available_models": [{{ "name": "auto", "max_tokens": 200000 }}]
      }}
    }}
  }}
}}
"#
        ),
        ClientKind::Litellm => format!(
            r#"# config.yaml; then:
#   export {VARIABLE}={shell}
#   litellm --config config.yaml
model_list:
  - model_name: cursor
    litellm_params:
      model: openai/auto
      api_base: {url}
      api_key: os.environ/{VARIABLE}
"#
        ),
        ClientKind::Curl => format!(
            "curl {url}/chat/completions -H \"Authorization: Bearer \"{shell} \\\n  -d '{{\"model\": \"auto\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::SecretString;

    #[test]
    fn settings_name_the_file_of_the_token_and_not_the_token() {
        let secret: SecretString = "a-very-secret-token".into();
        let file = Some(std::path::PathBuf::from("/state/it's/gateway-token"));
        let stored = TokenPlace::of(&Token {
            secret: secret.clone(),
            file,
        });
        let own = TokenPlace::of(&Token { secret, file: None });
        for client in ClientKind::value_variants() {
            let text = settings(*client, 4141, &stored);
            assert!(text.contains("127.0.0.1:4141"), "{text}");
            assert!(text.contains("gateway-token"), "{text}");
            let text = text + &settings(*client, 4141, &own);
            assert!(
                text.contains(TOKEN) && !text.contains("a-very-secret"),
                "{text}"
            );
        }
        let codex: toml::Table =
            toml::from_str(&settings(ClientKind::Codex, 4141, &stored)).unwrap();
        assert_eq!(codex["model_provider"].as_str(), Some("cursor"));
        let opencode = settings(ClientKind::Opencode, 4141, &stored);
        let json: serde_json::Value =
            serde_json::from_str(opencode.split_once('\n').unwrap().1).unwrap();
        let options = &json["provider"]["cursor"]["options"];
        assert_eq!(options["apiKey"], "{file:/state/it's/gateway-token}");
        assert!(settings(ClientKind::Claude, 4141, &stored).contains(r"it'\''s"));
    }
}
