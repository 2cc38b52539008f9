//! The schema registry's client: what the ids in front of records mean, and ids for schemas of our own.

use std::time::Duration;

use landfall_schemas::avro::Reference;
use landfall_schemas::dialect::Registered;
use landfall_topology::plan::RegistryPlan;
use schema_registry_converter::blocking::schema_registry::{SrSettings, get_referenced_schema, get_schema_by_id, post_schema};
use schema_registry_converter::error::SRCError;
use schema_registry_converter::schema_registry_common::{RegisteredReference, SchemaType, SuppliedSchema};

/// How long an answer may take (RELIABILITY.md D 8).
const TIMEOUT: Duration = Duration::from_secs(5);
/// What a registry says of a schema that it does not have.
const UNKNOWN_CODE: &str = "40403";
/// The deepest that schemas refer to each other (RELIABILITY.md D 8).
const DEPTH_MAX: usize = 16;
/// The most schemas that one refers to.
const REFERENCES_MAX: usize = 256;

/// A client of the registry.
#[derive(Debug)]
pub struct Client {
    settings: SrSettings,
}

impl Client {
    /// A client; the password stays within it.
    pub fn new(plan: &RegistryPlan) -> Result<Self, String> {
        Self::of(&plan.url, plan.login.as_ref().map(|(name, password)| (name.as_str(), password.expose())))
    }

    /// A client of a registry that asks for no login.
    pub fn without_login(url: &str) -> Result<Self, String> {
        Self::of(url, None)
    }

    fn of(url: &str, login: Option<(&str, &str)>) -> Result<Self, String> {
        // Credentials go to the address that the file names and nowhere else, so nothing is followed.
        let http = reqwest::blocking::Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(TIMEOUT);
        let mut builder = SrSettings::new_builder(url.to_owned());
        if let Some((name, password)) = login {
            let _ = builder.set_basic_authorization(name, Some(password));
        }
        let settings = builder.no_proxy().set_timeout(TIMEOUT).build_with(http).map_err(|e| reason(&e))?;
        Ok(Self { settings })
    }

    /// What an id is.
    pub fn get(&self, id: u64) -> Result<Registered, String> {
        let Ok(short) = u32::try_from(id) else { return Ok(Registered::Unknown) };
        let found = match get_schema_by_id(short, &self.settings) {
            Ok(found) => found,
            // Any proxy may say 404; that a schema does not exist is a word of the registry's own.
            Err(error) if error.cause.as_ref().is_some_and(|cause| cause.contains(UNKNOWN_CODE)) => return Ok(Registered::Unknown),
            Err(error) => return Err(reason(&error)),
        };
        let kind = match found.schema_type {
            SchemaType::Avro | SchemaType::Protobuf => {
                let mut references = Vec::new();
                self.follow(&found.references, &mut references, 0)?;
                let text = found.schema;
                return Ok(match found.schema_type {
                    SchemaType::Avro => Registered::Avro { text, references },
                    _ => Registered::Protobuf { text, references },
                });
            }
            SchemaType::Json => "JSON".to_owned(),
            SchemaType::Other(other) => other,
            other => format!("{other:?}"),
        };
        Ok(Registered::Other(kind))
    }

    /// Registers a schema of Avro under a subject; its id. One that is registered already keeps its own.
    pub fn register(&self, subject: &str, text: &str) -> Result<u64, String> {
        let schema = SuppliedSchema::new(None, SchemaType::Avro, text.to_owned());
        post_schema(&self.settings, subject.to_owned(), schema).map(|registered| registered.id.into()).map_err(|e| reason(&e))
    }

    /// Collects what a schema refers to, each behind what it refers to itself.
    fn follow(&self, wanted: &[RegisteredReference], references: &mut Vec<Reference>, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX || references.len() > REFERENCES_MAX {
            return Err(format!("schemas refer to each other deeper than {DEPTH_MAX}, or to more than {REFERENCES_MAX}"));
        }
        for reference in wanted {
            if references.iter().any(|r| r.name == reference.name) {
                continue;
            }
            let found = get_referenced_schema(&self.settings, reference).map_err(|e| reason(&e))?;
            self.follow(&found.references, references, depth + 1)?;
            references.push(Reference { name: reference.name.clone(), text: found.schema });
        }
        Ok(())
    }
}

fn reason(error: &SRCError) -> String {
    match &error.cause {
        Some(cause) => format!("{} ({cause})", error.error),
        None => error.error.clone(),
    }
}
