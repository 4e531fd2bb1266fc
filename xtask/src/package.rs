//! `cargo xtask package`: the npm packages. The main one has the extension and a launcher; the
//! programs are in one package per platform, of which npm installs the one that fits.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::root;

/// The platforms with packages, as Node names them, and Rust's name of each.
pub const PLATFORMS: &[(&str, &str)] = &[
    ("linux-x64", "x86_64-unknown-linux"),
    ("linux-arm64", "aarch64-unknown-linux"),
    ("darwin-x64", "x86_64-apple-darwin"),
    ("darwin-arm64", "aarch64-apple-darwin"),
    ("win32-x64", "x86_64-pc-windows-gnu"),
];
const PROGRAM: &str = "cursor-sidecar";
/// Where `cargo-zigbuild` and zig are looked for, apart from the `PATH`.
const ZIG: &str = "target/zig-venv/bin";

/// Returns the name of the program's file on a platform.
pub fn file_name(platform: &str) -> &'static str {
    if platform.starts_with("win32") {
        "cursor-sidecar.exe"
    } else {
        PROGRAM
    }
}

/// Reads `PLATFORM=PATH`.
pub fn parse_binary(text: &str) -> Result<(String, PathBuf), String> {
    let (platform, path) = text.split_once('=').ok_or("expected PLATFORM=PATH")?;
    if PLATFORMS.iter().any(|(name, _)| *name == platform) {
        return Ok((platform.into(), path.into()));
    }
    let names: Vec<_> = PLATFORMS.iter().map(|(name, _)| *name).collect();
    Err(format!("{platform}: not one of {}", names.join(", ")))
}

/// Builds the program for every platform whose standard library is installed, and returns the
/// platforms with their programs.
pub fn build_reachable() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut built = Vec::new();
    for (platform, target) in PLATFORMS {
        match build(platform, target)? {
            Some(program) => built.push(((*platform).to_owned(), program)),
            None => note(&format!(
                "{platform}: not built, no standard library or linker for it here; `rustup target add`, or build it there and add --binary {platform}=PATH"
            )),
        }
    }
    ensure!(!built.is_empty(), "no platform can be built here");
    Ok(built)
}

/// Builds for one platform: for Linux static with musl, else for glibc 2.17 through zig, else for
/// the glibc of this machine; for Windows with mingw-w64.
fn build(platform: &str, target: &str) -> anyhow::Result<Option<PathBuf>> {
    let on_mac = cfg!(target_os = "macos");
    if platform.starts_with("darwin") {
        let is_reachable = on_mac && has_standard_library(target);
        return is_reachable
            .then(|| cargo("build", target, target))
            .transpose();
    }
    if platform.starts_with("win32") {
        let is_reachable = has_standard_library(target) && is_command("x86_64-w64-mingw32-gcc");
        return is_reachable
            .then(|| cargo("build", target, target))
            .transpose();
    }
    let zig = root().join(ZIG).join("cargo-zigbuild").exists();
    let (musl, gnu) = (format!("{target}-musl"), format!("{target}-gnu"));
    if zig && has_standard_library(&musl) {
        return cargo("zigbuild", &musl, &musl).map(Some);
    }
    if zig && has_standard_library(&gnu) {
        return cargo("zigbuild", &format!("{gnu}.2.17"), &gnu).map(Some);
    }
    let is_host = cfg!(target_os = "linux") && target.starts_with(std::env::consts::ARCH);
    if !is_host {
        return Ok(None);
    }
    note(&format!(
        "{platform}: linked with this machine's glibc, so it needs the same or a newer one. For older systems: python3 -m venv target/zig-venv && target/zig-venv/bin/pip install ziglang cargo-zigbuild"
    ));
    cargo("build", &gnu, &gnu).map(Some)
}

fn is_command(name: &str) -> bool {
    let output = Command::new(name).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

fn has_standard_library(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    output.is_ok_and(|output| {
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && Path::new(&folder).is_dir()
    })
}

fn cargo(command: &str, target: &str, folder: &str) -> anyhow::Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let with_zig = [root().join(ZIG)]
        .into_iter()
        .chain(std::env::split_paths(&paths));
    let status = Command::new("cargo")
        .args([command, "--locked", "--profile", "dist", "--bin", PROGRAM])
        .args(["--target", target])
        .env("PATH", std::env::join_paths(with_zig)?)
        // zig only compiles C for it; see .cargo/config.toml.
        .envs(linker(target))
        // Assembled before, because few machines have its assembler.
        .env("AWS_LC_SYS_PREBUILT_NASM", "1")
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "cargo {command} for {target} failed");
    let target_folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let program = root().join(target_folder).join(folder).join("dist");
    let name = if target.contains("windows") {
        file_name("win32")
    } else {
        PROGRAM
    };
    Ok(program.join(name))
}

/// Returns the variable that keeps Rust's own linker for a static program.
fn linker(target: &str) -> Option<(String, &'static str)> {
    let variable = target.to_uppercase().replace('-', "_");
    let is_static = target.ends_with("-musl");
    is_static.then(|| (format!("CARGO_TARGET_{variable}_LINKER"), "rust-lld"))
}

/// Writes the packages and `SHA256SUMS`, and returns the packages, the main one last.
pub fn write(
    out: &Path,
    version: &str,
    binaries: &[(String, PathBuf)],
    local: bool,
) -> anyhow::Result<Vec<PathBuf>> {
    fs::create_dir_all(out)?;
    let out = &out.canonicalize()?;
    let stage = tempfile::tempdir()?;
    let mut packages = Vec::new();
    let mut optional = serde_json::Map::new();
    for (platform, program) in binaries {
        let folder = stage.path().join(platform);
        stage_platform(&folder, platform, program, version)?;
        let package = pack(&folder, out)?;
        let wanted = if local {
            format!("file:{}", package.display())
        } else {
            version.to_owned()
        };
        optional.insert(format!("{PROGRAM}-{platform}"), wanted.into());
        packages.push(package);
    }
    let folder = stage.path().join("main");
    stage_main(&folder, version, optional)?;
    packages.push(pack(&folder, out)?);
    fs::write(out.join("SHA256SUMS"), sums(&packages)?)?;
    Ok(packages)
}

fn stage_platform(
    folder: &Path,
    platform: &str,
    program: &Path,
    version: &str,
) -> anyhow::Result<()> {
    let (os, cpu) = platform.split_once('-').context("a platform is OS-CPU")?;
    fs::create_dir_all(folder)?;
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut manifest = json!({
        "name": format!("{PROGRAM}-{platform}"),
        "version": version,
        "description": format!("The program of pi-cursor-sidecar for {platform}"),
        "license": "MIT OR Apache-2.0",
        "os": [os],
        "cpu": [cpu],
        "files": [file_name(platform)],
    });
    // A static program runs with every C library.
    let loader = b"/ld-linux";
    if bytes.windows(loader.len()).any(|window| window == loader) {
        manifest["libc"] = json!(["glibc"]);
    }
    fs::copy(program, folder.join(file_name(platform)))?; // with its mode
    copy_licenses(folder)?;
    write_json(&folder.join("package.json"), &manifest)
}

fn stage_main(
    folder: &Path,
    version: &str,
    optional: serde_json::Map<String, Json>,
) -> anyhow::Result<()> {
    let shim = root().join("js-shim");
    for part in ["bin", "cursor-sidecar", "src"] {
        fs::create_dir_all(folder.join(part))?;
        for entry in fs::read_dir(shim.join(part))? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(part).join(entry.file_name()))?;
        }
    }
    copy_licenses(folder)?;
    for file in ["README.md", "CHANGELOG.md"] {
        fs::copy(root().join(file), folder.join(file))?;
    }
    let manifest = fs::read_to_string(shim.join("package.json"))?;
    let mut manifest: serde_json::Map<String, Json> = serde_json::from_str(&manifest)?;
    manifest.insert("version".into(), version.into());
    manifest.insert("optionalDependencies".into(), optional.into());
    for development in ["scripts", "devDependencies"] {
        manifest.remove(development);
    }
    write_json(&folder.join("package.json"), &manifest.into())
}

fn copy_licenses(folder: &Path) -> anyhow::Result<()> {
    for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root().join(file), folder.join(file))?;
    }
    Ok(())
}

fn write_json(file: &Path, value: &Json) -> anyhow::Result<()> {
    fs::write(file, serde_json::to_string_pretty(value)? + "\n")?;
    Ok(())
}

/// Packs a folder with npm and returns the file.
fn pack(folder: &Path, out: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("npm")
        .args(["pack", "--silent", "--offline", "--pack-destination"])
        .arg(out)
        .current_dir(folder)
        .output()
        .context("cannot start npm")?;
    if !output.status.success() {
        bail!("npm pack: {}", String::from_utf8_lossy(&output.stderr));
    }
    let name = String::from_utf8(output.stdout)?;
    Ok(out.join(name.trim()))
}

/// Returns the lines that `sha256sum --check` reads.
fn sums(files: &[PathBuf]) -> anyhow::Result<String> {
    let mut text = String::new();
    for file in files {
        for byte in Sha256::digest(fs::read(file)?) {
            write!(text, "{byte:02x}")?;
        }
        let name = file.file_name().context("a package has a name")?;
        writeln!(text, "  {}", name.to_string_lossy())?;
    }
    Ok(text)
}

fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "package: {text}");
}
