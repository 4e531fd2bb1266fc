//! The npm packages in a home without the repository: installed, used, updated and removed by
//! real pi.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use test_support::pi_env::{PiEnv, PiOutput, PiVersion};
use test_support::pi_tools::{END, call, pi_env, says};
use test_support::wait::until_named;
use test_support::{binary, root};
use xtask::package;

use crate::tool_calls::one_run;

/// The version of the program under test, and one before it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const OLDER: &str = "0.0.9";

fn platform() -> String {
    let cpu = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    };
    format!("{os}-{cpu}")
}

/// Writes a program that is the sidecar, except that it reports the older version.
fn older_program(folder: &Path) -> PathBuf {
    assert_eq!(VERSION.len(), OLDER.len(), "frames have a length");
    let program = folder.join("older");
    let script = format!(
        "#!/usr/bin/env node\nconst {{ spawn }} = require('child_process');\nconst child = spawn({:?}, process.argv.slice(2), {{ stdio: ['inherit', 'pipe', 'inherit'] }});\nchild.stdout.on('data', (bytes) => process.stdout.write(bytes.toString('latin1').replace('\"version\":\"{VERSION}\"', '\"version\":\"{OLDER}\"'), 'latin1'));\n",
        binary()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

/// Writes the packages of a version and returns the source that pi installs.
fn packages(out: &Path, version: &str, program: &Path) -> String {
    let programs = [(platform(), program.to_owned())];
    let written = package::write(out, version, &programs, true).unwrap();
    let check = Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(out)
        .status()
        .unwrap();
    assert!(check.success());
    let main = written.last().unwrap().display();
    format!("npm:pi-cursor-sidecar@file:{main}")
}

/// Runs pi as its user does, with what is installed.
fn pi(pi_env: &PiEnv, arguments: &[&str]) -> PiOutput {
    let mut command = Command::new(root().join("tests/official/node_modules/.bin/node"));
    command
        .arg(pi_env.program())
        .args(arguments)
        .current_dir(&pi_env.workspace)
        .env_clear()
        .envs(pi_env.environment())
        .env_remove("PI_CURSOR_SIDECAR")
        .env("npm_config_offline", "true")
        .env("npm_config_cache", test_support::shared_folder("npm"))
        .env("npm_config_update_notifier", "false")
        .stdin(Stdio::null());
    PiOutput::from(command.output().unwrap())
}

#[track_caller]
fn succeeds(output: &PiOutput) {
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// Waits until no process has this home.
#[track_caller]
fn nothing_runs_in(home: &Path) {
    let mark = format!("HOME={}\0", home.display()).into_bytes();
    until_named("all processes have ended", || {
        let mut processes = fs::read_dir("/proc").unwrap().flatten();
        let is_left = processes.any(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment
                .windows(mark.len())
                .any(|window| window == mark.as_slice())
        });
        (!is_left).then_some(())
    });
}

/// Returns the names in the home, and those in the folders for state and settings.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns a file of a package.
fn content(package: &Path, file: &str) -> Vec<u8> {
    let output = Command::new("tar")
        .arg("-xzOf")
        .arg(package)
        .arg(format!("package/{file}"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{} has no {file}",
        package.display()
    );
    output.stdout
}

fn manifest(package: &Path) -> serde_json::Value {
    serde_json::from_slice(&content(package, "package.json")).unwrap()
}

/// npm installs the one package whose system and processor fit.
#[test]
fn each_platform_has_a_package_with_its_program() {
    let out = tempfile::tempdir().unwrap();
    let mut programs = Vec::new();
    for (platform, target) in package::PLATFORMS {
        let program = out.path().join(platform);
        fs::write(&program, target).unwrap();
        programs.push(((*platform).to_owned(), program));
    }
    // Not static, so it needs the C library it was linked with.
    fs::write(&programs[1].1, "\x7fELF /lib/ld-linux-aarch64.so.1").unwrap();
    let written = package::write(out.path(), VERSION, &programs, false).unwrap();
    let (main, written) = written.split_last().unwrap();
    let optional = manifest(main)["optionalDependencies"].clone();
    assert_eq!(written.len(), package::PLATFORMS.len());
    for ((platform, program), package) in programs.iter().zip(written) {
        let manifest = manifest(package);
        let (os, cpu) = platform.split_once('-').unwrap();
        assert_eq!(manifest["os"], serde_json::json!([os]));
        assert_eq!(manifest["cpu"], serde_json::json!([cpu]));
        assert_eq!(manifest.get("libc").is_some(), platform == "linux-arm64");
        assert_eq!(optional[manifest["name"].as_str().unwrap()], VERSION);
        let file = if os == "win32" {
            "cursor-sidecar.exe"
        } else {
            "cursor-sidecar"
        };
        assert_eq!(content(package, file), fs::read(program).unwrap());
    }
}

#[test]
fn packages_are_installed_used_updated_and_removed() {
    let steps = [
        &call("echo", &says("\"echo echo\"")),
        r#"{ text = "Done." }"#,
        END,
    ];
    let (pi_env, tools) = pi_env(PiVersion::V087, &[steps.join(", ")]);
    let home = pi_env.home.path();
    let out = tempfile::tempdir().unwrap();
    let before = names(home);

    let older = older_program(out.path());
    succeeds(&pi(
        &pi_env,
        &["install", &packages(out.path(), OLDER, &older)],
    ));
    let installed = home.join("agent/npm/node_modules");
    assert_eq!(
        names(&installed)
            .into_iter()
            .filter(|name| !name.starts_with('.'))
            .collect::<Vec<_>>(),
        [
            format!("cursor-sidecar-{}", platform()),
            "pi-cursor-sidecar".to_owned()
        ]
    );
    let tools = tools.to_str().unwrap();
    let model = ["--model", "cursor/composer-2"];
    let answer = pi(
        &pi_env,
        &[&["-e", tools], &model[..], &["-p", "hi"]].concat(),
    );
    assert_eq!(answer.stdout, "Done.\n", "{answer:?}");
    one_run(&pi_env.simulator.recorded(), 1);

    let source = packages(out.path(), VERSION, Path::new(binary()));
    succeeds(&pi(&pi_env, &["install", &source]));
    let manifest = fs::read_to_string(installed.join("pi-cursor-sidecar/package.json")).unwrap();
    assert!(manifest.contains(&format!("\"version\": \"{VERSION}\"")));
    let report = pi(&pi_env, &[&model[..], &["-p", "/cursor-doctor"]].concat());
    let report = report.stdout + &report.stderr;
    assert!(
        report.contains(&format!("✓ cursor-sidecar {VERSION}")),
        "{report}"
    );

    // The command that npm links.
    let launcher = Command::new(home.join("agent/npm/node_modules/.bin/cursor-sidecar"))
        .arg("--version")
        .env_remove("PI_CURSOR_SIDECAR")
        .output()
        .unwrap();
    let version = String::from_utf8(launcher.stdout).unwrap();
    assert!(version.contains(VERSION), "{version}");

    // An extension of one version with a program of another.
    let mixed = older.to_str().unwrap();
    let mut command = Command::new(root().join("tests/official/node_modules/.bin/node"));
    let output = command
        .arg(pi_env.program())
        .args(["--model", "cursor/auto", "-p", "hi"])
        .current_dir(&pi_env.workspace)
        .env_clear()
        .envs(pi_env.environment())
        .env("PI_CURSOR_SIDECAR", mixed)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "pi-cursor-sidecar {VERSION} (protocol 1) cannot use cursor-sidecar {OLDER} (protocol 1) at {mixed}: "
    );
    assert!(errors.contains(&expected), "{errors}");
    assert!(
        errors.contains("pi install npm:pi-cursor-sidecar"),
        "{errors}"
    );

    succeeds(&pi(&pi_env, &["remove", &source]));
    assert!(!installed.join("pi-cursor-sidecar").exists());
    let models = pi(&pi_env, &["--list-models"]);
    assert!(!models.stdout.contains("composer-2"), "{models:?}");
    nothing_runs_in(home);
    let added: Vec<String> = names(home)
        .into_iter()
        .filter(|name| !before.contains(name))
        .collect();
    assert!(
        added
            .iter()
            .all(|name| [".local", ".config", ".cache"].contains(&name.as_str())),
        "{added:?}"
    );
    for folder in [".local/state", ".config"] {
        let names = names(&home.join(folder));
        assert!(
            names.iter().all(|name| name == "cursor-sidecar"),
            "{folder}: {names:?}"
        );
    }
}
