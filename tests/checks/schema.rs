//! The generated protobuf code is checked in; these tests fail if it is stale, and compare every
//! field we declare with the listing of Cursor's own schema.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use prost_reflect::{DescriptorPool, ExtensionDescriptor};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn proto_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("schema/proto")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Compiles `schema/proto` in process, without `protoc`.
fn compile() -> DescriptorPool {
    let mut compiler = protox::Compiler::new([root().join("schema/proto")]).unwrap();
    compiler.include_imports(true);
    compiler.open_files(proto_files()).unwrap();
    compiler.descriptor_pool()
}

/// Returns the Rust code by file name.
fn generate(pool: &DescriptorPool) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
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
        .compile_fds(files)
        .unwrap();
    std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .collect()
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
fn typed_descriptors(pool: &DescriptorPool) -> Vec<u8> {
    let opaque = pool.get_extension_by_name("sidecar.opaque").unwrap();
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
            restore_types(&mut proto, &message, &opaque, pool);
            merged.message_type.push(proto);
        }
        merged
            .enum_type
            .extend(file.enums().map(|e| e.enum_descriptor_proto().clone()));
    }
    let mut agent = packages.remove("agent.v1").unwrap();
    let mut aiserver = packages.remove("aiserver.v1").unwrap();
    aiserver.dependency = vec!["google/protobuf/struct.proto".into()];
    agent.dependency = vec![
        "google/protobuf/struct.proto".into(),
        "aiserver.v1.proto".into(),
    ];
    let google = DescriptorPool::global()
        .get_file_by_name("google/protobuf/struct.proto")
        .unwrap()
        .file_descriptor_proto()
        .clone();
    let set = FileDescriptorSet {
        file: vec![google, aiserver, agent],
    };
    DescriptorPool::from_file_descriptor_set(set.clone()).expect("the typed schema is coherent");
    set.encode_to_vec()
}

fn restore_types(
    proto: &mut DescriptorProto,
    message: &prost_reflect::MessageDescriptor,
    opaque: &ExtensionDescriptor,
    pool: &DescriptorPool,
) {
    for (nested_proto, nested) in proto.nested_type.iter_mut().zip(message.child_messages()) {
        restore_types(nested_proto, &nested, opaque, pool);
    }
    for field in &mut proto.field {
        field.options = None;
        field.json_name = None;
        let descriptor = message.get_field(field.number() as u32).unwrap();
        let options = descriptor.options();
        if !options.has_extension(opaque) {
            continue;
        }
        let name = options.get_extension(opaque).as_str().unwrap().to_owned();
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
                .unwrap();
            let value = entry.field.iter_mut().find(|f| f.number() == 2).unwrap();
            retype(value, &name);
        } else {
            retype(field, &name);
        }
    }
}

fn retype(field: &mut FieldDescriptorProto, name: &str) {
    field.set_type(Type::Message);
    field.type_name = Some(format!(".{name}"));
}

#[test]
fn generated_code_is_fresh() {
    let folder = root().join("crates/cursor-proto/src/generated");
    let pool = compile();
    let mut wanted: BTreeMap<String, Vec<u8>> = generate(&pool)
        .into_iter()
        .map(|(name, text)| (name, text.into_bytes()))
        .collect();
    wanted.insert("descriptors.binpb".into(), typed_descriptors(&pool));

    let update = std::env::var_os("UPDATE_SCHEMA").is_some();
    for (name, content) in wanted {
        let path = folder.join(&name);
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &content).unwrap();
        } else {
            let current = std::fs::read(&path).unwrap_or_default();
            assert!(
                current == content,
                "crates/cursor-proto/src/generated/{name} is stale: run `make schema`"
            );
        }
    }
}

/// One field as the listing prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    kind: String,
    label: String,
}

type Listing = BTreeMap<String, BTreeMap<u32, Field>>;

/// Reads `agent-v1-schema.txt`: messages at column 0, fields after one blank.
fn listing(text: &str) -> (Listing, BTreeMap<String, BTreeMap<i32, String>>) {
    let mut messages = Listing::new();
    let mut enums: BTreeMap<String, BTreeMap<i32, String>> = BTreeMap::new();
    let mut current: Option<(bool, String)> = None;
    for line in text.lines() {
        if line.starts_with('#') || line.is_empty() {
            if line.starts_with("##########") {
                current = None;
            }
            continue;
        }
        let bare = line.split(" #").next().unwrap().trim_end();
        if !line.starts_with(' ') {
            current = match bare.strip_prefix("enum ") {
                Some(name) => Some((true, name.trim().to_owned())),
                None if bare.starts_with('(') => None,
                None => {
                    messages.entry(bare.trim().to_owned()).or_default();
                    Some((false, bare.trim().to_owned()))
                }
            };
            continue;
        }
        let Some((is_enum, owner)) = &current else {
            continue;
        };
        let mut words = bare.trim().splitn(3, ' ');
        let (Some(number), Some(name)) = (words.next(), words.next()) else {
            continue;
        };
        if *is_enum {
            if let Ok(number) = number.parse() {
                enums
                    .entry(owner.clone())
                    .or_default()
                    .insert(number, name.to_owned());
            }
            continue;
        }
        let (Ok(number), Some(rest)) = (number.parse::<u32>(), words.next()) else {
            continue;
        };
        let (kind, label) = match rest.rfind(" [") {
            Some(at) => (&rest[..at], rest[at + 2..].trim_end_matches(']')),
            None => (rest, ""),
        };
        messages.get_mut(owner).unwrap().insert(
            number,
            Field {
                name: name.to_owned(),
                kind: kind.trim().to_owned(),
                label: label.to_owned(),
            },
        );
    }
    (messages, enums)
}

fn kind_of(field: &prost_reflect::FieldDescriptor, opaque: &ExtensionDescriptor) -> String {
    use prost_reflect::Kind;
    let name = |kind: Kind| match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(e) => format!("enum {}", e.full_name()),
        scalar => format!("{scalar:?}").to_lowercase(),
    };
    let options = field.options();
    let opaque = options
        .has_extension(opaque)
        .then(|| options.get_extension(opaque).as_str().unwrap().to_owned());
    match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => {
            let value = opaque.unwrap_or_else(|| name(entry.map_entry_value_field().kind()));
            format!("map<{},{value}>", name(entry.map_entry_key_field().kind()))
        }
        kind => opaque.unwrap_or_else(|| name(kind)),
    }
}

fn label_of(field: &prost_reflect::FieldDescriptor) -> String {
    let proto = field.field_descriptor_proto();
    if field.is_map() {
        String::new()
    } else if proto.label() == Label::Repeated {
        "repeated".into()
    } else if proto.proto3_optional() {
        "optional".into()
    } else if let Some(oneof) = field.containing_oneof() {
        format!("oneof {}", oneof.name())
    } else {
        String::new()
    }
}

/// Nested messages whose names differ between public sources, so that no listing has them.
const UNNAMED_IN_LISTING: &str = "aiserver.v1.AvailableModelsResponse.AvailableModel.";

#[test]
fn declared_fields_match_the_listing() {
    let path = root().join("../shared/facts/agent-v1-schema.txt");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("note: no schema listing beside this checkout, nothing to compare with");
        return;
    };
    let (messages, enums) = listing(&text);
    let pool = compile();
    let opaque = pool.get_extension_by_name("sidecar.opaque").unwrap();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for message in pool.all_messages() {
        if message.is_map_entry() || !message.full_name().contains(".v1.") {
            continue;
        }
        if message.full_name().starts_with(UNNAMED_IN_LISTING) {
            continue;
        }
        let Some(listed) = messages.get(message.full_name()) else {
            wrong.push(format!("{} is not in the listing", message.full_name()));
            continue;
        };
        for field in message.fields() {
            let ours = Field {
                name: field.name().to_owned(),
                kind: kind_of(&field, &opaque),
                label: label_of(&field),
            };
            let Some(theirs) = listed.get(&field.number()) else {
                wrong.push(format!("{} is not in the listing", field.full_name()));
                continue;
            };
            compared += 1;
            // An opaque field needs explicit presence to keep "present but empty".
            let presence_only = field.options().has_extension(&opaque)
                && ours.label == "optional"
                && theirs.label.is_empty();
            let unnamed = theirs.kind.contains("(message)") || theirs.kind.contains("not known");
            let same = ours.name == theirs.name
                && (unnamed || ours.kind == theirs.kind)
                && (presence_only || ours.label == theirs.label);
            if !same {
                wrong.push(format!(
                    "{}: ours {ours:?}, listed {theirs:?}",
                    field.full_name()
                ));
            }
        }
    }
    for e in pool.all_enums().filter(|e| e.full_name().contains(".v1.")) {
        let listed = &enums[e.full_name()];
        for value in e.values() {
            if listed.get(&value.number()).map(String::as_str) != Some(value.name()) {
                wrong.push(format!("{} = {}", value.full_name(), value.number()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 1_000, "only {compared} fields compared");
}
