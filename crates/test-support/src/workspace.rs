//! Files and sessions in the workspace of the official client.

use std::fs;
use std::path::Path;

use crate::official_client::OfficialClient;
use crate::rpc_session::RpcSession;
use crate::simulator::Simulator;

pub fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A host in the client's workspace, with the client's home.
pub fn session(simulator: &Simulator, sdk: &OfficialClient, env: &[(&str, &str)]) -> RpcSession {
    let mut all = vec![
        ("HOME", sdk.home.path().to_str().unwrap()),
        ("PATH", env!("PATH")),
    ];
    all.extend_from_slice(env);
    let mut session = RpcSession::new(simulator, "s", &all);
    session.workspace = sdk.workspace.to_str().unwrap().into();
    session
}
