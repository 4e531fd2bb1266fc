//! What the end-to-end tests share.
//!
//! | module | what it drives |
//! |---|---|
//! | `simulator`, `scenario` | `cursor-sidecar sim` as a process, and the scripts that it plays |
//! | `sidecar`, `rpc_session` | the sidecar as a process, and a host's session with it |
//! | `in_process` | a session and a simulator inside the test, where the clock can be paused |
//! | `run_client` | the engine's runs without sessions |
//! | `gateway`, `api_client` | `cursor-sidecar gateway` as a process, and HTTP clients of it |
//! | `official_client`, `recordings` | Cursor's own client, which runs in Node, and what it answered |
//! | `fault_proxy` | a proxy that breaks connections at chosen frames |
//! | `pi_env`, `pi_rpc`, `pi_screen`, `pi_tools`, `pi_retry_rules` | real pi |
//! | `instruction_counts` | callgrind, which counts what hot paths execute |
//! | `processes`, `wait`, `workspace`, `debug_log` | what processes did, and polling |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    missing_docs
)]

pub mod acp_editor;
pub mod api_client;
pub mod debug_log;
pub mod fault_proxy;
#[cfg(target_os = "linux")]
pub mod folder_watch;
pub mod gateway;
pub mod in_process;
pub mod instruction_counts;
pub mod official_client;
pub mod pi_env;
pub mod pi_retry_rules;
pub mod pi_rpc;
pub mod pi_screen;
pub mod pi_tools;
pub mod processes;
pub mod recordings;
pub mod rpc_session;
pub mod run_client;
pub mod scenario;
pub mod sidecar;
pub mod simulator;
pub mod wait;
pub mod workspace;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        crate_folder.join("../..").canonicalize().unwrap()
    });
    &ROOT
}

/// Returns the folder of this build: `target/debug`, or that of another profile or target.
fn build_folder() -> PathBuf {
    // Cargo puts the tests into `deps`, and the binaries of the package beside that folder.
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// Returns the path of the sidecar under test: the one that was built with the tests, unless
/// `SIDECAR_UNDER_TEST` names the shipped one, or a script that runs one for another platform.
pub fn binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        std::env::var("SIDECAR_UNDER_TEST").unwrap_or_else(|_| built_binary().to_owned())
    });
    &BINARY
}

/// Returns the path of the sidecar that was built with the tests.
pub fn built_binary() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        // nextest sets the variable, also where it unpacked the tests from an archive.
        if let Ok(binary) = std::env::var("NEXTEST_BIN_EXE_cursor-sidecar") {
            return binary;
        }
        let binary = build_folder().join(format!("cursor-sidecar{}", std::env::consts::EXE_SUFFIX));
        assert!(binary.exists(), "{} was not built", binary.display());
        binary.to_str().unwrap().to_owned()
    });
    &BINARY
}

/// Returns a folder for files that tests share and may keep.
pub fn shared_folder(name: &str) -> PathBuf {
    let folder = build_folder().parent().unwrap().join("tmp").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
