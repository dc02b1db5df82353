//! Puts the schemas of numbers and texts where they are used. Each is written once, in `describe::values`.
//!
//! Generators make a class of each schema in the components: a client would have to write `Id(root=1)` for 1. An
//! enumeration stays, so that generators make one class of it, with its name.

use std::collections::BTreeMap;

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, SchemaType, Type};
use utoipa::openapi::{Components, Content, OpenApi, RefOr, Schema};

const SCHEMAS: &str = "#/components/schemas/";

/// The schemas that are put in place of their names, by their references.
pub(super) struct Inline(BTreeMap<String, Schema>);

/// Puts the schemas of numbers and texts in place of their names, in the whole document.
pub(super) fn values(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    let inline = Inline::taken_from(components);
    for schema in components.schemas.values_mut() {
        inline.within(schema);
    }
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        operations
            .into_iter()
            .flatten()
            .for_each(|operation| inline.within_operation(operation));
    }
}

/// Returns whether a schema is of a number, of a text, or of one of both, and no enumeration.
fn is_value(schema: &Schema) -> bool {
    match schema {
        Schema::Object(object) => {
            let is_plain = matches!(
                object.schema_type,
                SchemaType::Type(Type::Integer | Type::Number | Type::String)
            );
            is_plain && object.enum_values.is_none()
        }
        Schema::OneOf(one) => one
            .items
            .iter()
            .all(|item| matches!(item, RefOr::T(schema) if is_value(schema))),
        _ => false,
    }
}

impl Inline {
    fn taken_from(components: &mut Components) -> Self {
        let mut values = BTreeMap::new();
        components.schemas.retain(|name, schema| match schema {
            RefOr::T(schema) if is_value(schema) => {
                values.insert(format!("{SCHEMAS}{name}"), schema.clone());
                false
            }
            _ => true,
        });
        Self(values)
    }

    fn within_operation(&self, operation: &mut Operation) {
        for parameter in operation.parameters.iter_mut().flatten() {
            if let RefOr::T(parameter) = parameter {
                parameter.schema.iter_mut().for_each(|schema| self.within(schema));
            }
        }
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            body.content
                .values_mut()
                .for_each(|content| self.within_content(content));
        }
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                response
                    .content
                    .values_mut()
                    .for_each(|content| self.within_content(content));
            }
        }
    }

    fn within_content(&self, content: &mut RefOr<Content>) {
        if let RefOr::T(content) = content {
            content.schema.iter_mut().for_each(|schema| self.within(schema));
        }
    }

    fn within(&self, schema: &mut RefOr<Schema>) {
        let found = match schema {
            RefOr::Ref(reference) => self
                .0
                .get(&reference.ref_location)
                .map(|value| described(value.clone(), &reference.description)),
            RefOr::T(Schema::Array(array)) => {
                if let ArrayItems::RefOrSchema(items) = &mut array.items {
                    self.within(items);
                }
                None
            }
            RefOr::T(Schema::Object(object)) => {
                object
                    .properties
                    .values_mut()
                    .for_each(|property| self.within(property));
                if let Some(AdditionalProperties::RefOr(others)) = object.additional_properties.as_deref_mut()
                {
                    self.within(others);
                }
                None
            }
            RefOr::T(Schema::OneOf(one)) => {
                one.items.iter_mut().for_each(|item| self.within(item));
                None
            }
            RefOr::T(Schema::AllOf(all)) => {
                all.items.iter_mut().for_each(|item| self.within(item));
                None
            }
            RefOr::T(Schema::AnyOf(any)) => {
                any.items.iter_mut().for_each(|item| self.within(item));
                None
            }
            RefOr::T(_) => None,
        };
        if let Some(found) = found {
            *schema = RefOr::T(found);
        }
    }
}

/// Gives a value the description of its place, if the place has one.
fn described(mut value: Schema, description: &str) -> Schema {
    if !description.is_empty() {
        match &mut value {
            Schema::Object(object) => object.description = Some(description.to_owned()),
            Schema::OneOf(one) => one.description = Some(description.to_owned()),
            _ => {}
        }
    }
    value
}
