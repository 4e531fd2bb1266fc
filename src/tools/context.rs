//! The request context: what we tell the server about the machine and the workspace.

use std::path::Path;

use super::offer::Offer;
use crate::wire::proto::agent::v1::{RequestContext, RequestContextEnv};

/// The context of a run in `workspace`.
pub fn request_context(workspace: &Path, home: Option<&Path>, offers: &[Offer]) -> RequestContext {
    let workspace_text = workspace.to_string_lossy().into_owned();
    RequestContext {
        env: Some(RequestContextEnv {
            os_version: os_version(),
            workspace_paths: vec![workspace_text],
            shell: shell(),
            time_zone: iana_time_zone::get_timezone().unwrap_or_else(|_| "UTC".into()),
            sandbox_supported: Some(false),
            computer_use_supported: Some(false),
            is_working_dir_home_dir: Some(home == Some(workspace)),
            process_working_directory: std::env::current_dir()
                .ok()
                .map(|folder| folder.to_string_lossy().into_owned()),
            smart_mode_classifier_auto_mode_enabled: Some(false),
            ..RequestContextEnv::default()
        }),
        tools: offers.iter().map(Offer::definition).collect(),
        supports_mcp_auth: Some(false),
        env_info_complete: Some(true),
        ..RequestContext::default()
    }
}

/// Kernel name and release, in Node's words, as the official client says it.
fn os_version() -> String {
    let name = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    format!("{name} {release}")
}

/// The user's shell by its plain name.
fn shell() -> String {
    std::env::var("SHELL")
        .ok()
        .and_then(|path| Some(Path::new(&path).file_name()?.to_str()?.to_owned()))
        .unwrap_or_else(|| "bash".into())
}
