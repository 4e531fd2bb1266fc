//! Generates the Rust code and the descriptors of Cursor's messages from `schema/proto`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::Type,
};
use prost_reflect::{DescriptorPool, ExtensionDescriptor};

use crate::root;

/// Where the generated files are, below the root of the repository.
const FOLDER: &str = "crates/cursor-proto/src/generated";

/// Writes every generated file.
pub(crate) fn write_all() -> anyhow::Result<()> {
    let folder = root().join(FOLDER);
    for (name, content) in generate_all()? {
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}

/// Returns the content of every generated file by name.
fn generate_all() -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let pool = compile()?;
    let mut files = rust_code(&pool)?;
    files.insert("descriptors.binpb".into(), typed_descriptors(&pool)?);
    Ok(files)
}

/// Returns every file below a folder, sorted.
fn files_below(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Compiles `schema/proto` in process, without `protoc`.
fn compile() -> anyhow::Result<DescriptorPool> {
    let folder = root().join("schema/proto");
    let mut compiler = protox::Compiler::new([&folder])?;
    compiler.include_imports(true);
    compiler.open_files(files_below(&folder)?)?;
    Ok(compiler.descriptor_pool())
}

/// Returns the Rust code by file name.
fn rust_code(pool: &DescriptorPool) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let folder = tempfile::tempdir()?;
    let mut files: FileDescriptorSet = FileDescriptorSet {
        file: pool.file_descriptor_protos().cloned().collect(),
    };
    // The option file and Google's own descriptors need no Rust code.
    files
        .file
        .retain(|file| matches!(file.package(), "agent.v1" | "aiserver.v1"));
    for file in &mut files.file {
        file.source_code_info = None; // comments of messages; map entries would have none
        file.message_type.iter_mut().for_each(maps_as_lists);
    }
    prost_build::Config::new()
        .out_dir(folder.path())
        .bytes(["."])
        .compile_fds(files)?;
    let mut code = BTreeMap::new();
    for path in files_below(folder.path())? {
        let name = path.file_name().context("a file without a name")?;
        code.insert(name.to_string_lossy().into_owned(), std::fs::read(&path)?);
    }
    Ok(code)
}

/// Turns map fields into lists of entries (the same bytes), because a Rust map would lose the order
/// in which a model wrote its arguments.
fn maps_as_lists(message: &mut DescriptorProto) {
    if let Some(options) = &mut message.options {
        options.map_entry = None;
    }
    message.nested_type.iter_mut().for_each(maps_as_lists);
}

/// The same schema with every opaque field typed again, one file per package: the input of the
/// simulator and the drift report.
fn typed_descriptors(pool: &DescriptorPool) -> anyhow::Result<Vec<u8>> {
    let opaque = pool
        .get_extension_by_name("sidecar.opaque")
        .context("schema/proto does not define sidecar.opaque")?;
    let mut packages: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
    for file in pool.files() {
        if !matches!(file.package_name(), "agent.v1" | "aiserver.v1") {
            continue;
        }
        let merged = packages
            .entry(file.package_name().to_owned())
            .or_insert_with(|| FileDescriptorProto {
                name: Some(format!("{}.proto", file.package_name())),
                package: Some(file.package_name().to_owned()),
                syntax: Some("proto3".into()),
                ..Default::default()
            });
        for message in file.messages() {
            let mut proto = message.descriptor_proto().clone();
            restore_types(&mut proto, &message, &opaque, pool)?;
            merged.message_type.push(proto);
        }
        merged
            .enum_type
            .extend(file.enums().map(|e| e.enum_descriptor_proto().clone()));
    }
    let mut agent = packages.remove("agent.v1").context("no agent.v1")?;
    let mut aiserver = packages.remove("aiserver.v1").context("no aiserver.v1")?;
    aiserver.dependency = vec!["google/protobuf/struct.proto".into()];
    agent.dependency = vec![
        "google/protobuf/struct.proto".into(),
        "aiserver.v1.proto".into(),
    ];
    let google = DescriptorPool::global()
        .get_file_by_name("google/protobuf/struct.proto")
        .context("no struct.proto")?
        .file_descriptor_proto()
        .clone();
    let set = FileDescriptorSet {
        file: vec![google, aiserver, agent],
    };
    // Fails if a type is missing.
    DescriptorPool::from_file_descriptor_set(set.clone())?;
    Ok(set.encode_to_vec())
}

fn restore_types(
    proto: &mut DescriptorProto,
    message: &prost_reflect::MessageDescriptor,
    opaque: &ExtensionDescriptor,
    pool: &DescriptorPool,
) -> anyhow::Result<()> {
    for (nested_proto, nested) in proto.nested_type.iter_mut().zip(message.child_messages()) {
        restore_types(nested_proto, &nested, opaque, pool)?;
    }
    for field in &mut proto.field {
        field.options = None;
        field.json_name = None;
        let descriptor = message.get_field(u32::try_from(field.number())?);
        let descriptor = descriptor.context("a field without a descriptor")?;
        let options = descriptor.options();
        if !options.has_extension(opaque) {
            continue;
        }
        let name = options.get_extension(opaque);
        let name = name
            .as_str()
            .context("sidecar.opaque is not a string")?
            .to_owned();
        let known =
            name.starts_with("google.protobuf.") || pool.get_message_by_name(&name).is_some();
        if !known {
            continue; // a message we do not declare stays bytes
        }
        if descriptor.is_map() {
            let entry = proto
                .nested_type
                .iter_mut()
                .find(|nested| field.type_name().ends_with(&format!(".{}", nested.name())))
                .context("a map without an entry message")?;
            let mut fields = entry.field.iter_mut();
            let value = fields.find(|field| field.number() == 2);
            retype(value.context("a map entry without a value")?, &name);
        } else {
            retype(field, &name);
        }
    }
    Ok(())
}

fn retype(field: &mut FieldDescriptorProto, name: &str) {
    field.set_type(Type::Message);
    field.type_name = Some(format!(".{name}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_diff;

    #[test]
    fn the_generated_files_are_up_to_date() {
        for (name, content) in generate_all().unwrap() {
            let current = std::fs::read(root().join(FOLDER).join(&name)).unwrap();
            assert!(current == content, "{name} is stale: run `make schema`");
        }
    }

    /// The listing of Cursor's own schema is not part of the repository; developers have it beside
    /// their checkout.
    #[test]
    fn every_field_we_declare_is_in_the_listing() {
        let path = root().join("../shared/facts/agent-v1-schema.txt");
        let Ok(listing) = std::fs::read_to_string(&path) else {
            return;
        };
        let diff = schema_diff::compare_with(&listing).unwrap();
        let differing = (diff.breaking, diff.gone);
        assert_eq!(differing, (vec![], vec![]));
        let missing = (
            diff.other_changes.fields_gone,
            diff.other_changes.fields_renamed,
        );
        assert_eq!(missing, (0, 0));
        assert!(diff.compared.fields > 1_000, "{:?}", diff.compared);
    }
}
