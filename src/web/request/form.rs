//! Says what is wrong with input that could not be read, in the words of JSON and HTTP.
//!
//! serde reads the input. Its errors name Rust's types, so clients never see them. Input that serde rejects
//! is read again here, field by field, and compared with the declared fields.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::web::limits::BODY_LIMIT_BYTES;
use crate::web::problem::Problem;
use crate::web::request::reference::BodyItem;

/// Input with fields: a JSON object, or a query's parameters. [`form!`] declares it.
pub trait Form: DeserializeOwned {
    /// The fields that serde accepts, under the names that clients know.
    const FIELDS: &'static [Field];
    /// The largest body.
    const LIMIT_BYTES: usize = BODY_LIMIT_BYTES;

    /// The refusal of a larger body.
    fn too_large() -> Problem {
        Problem::body_too_large(Self::LIMIT_BYTES)
    }
}

/// Declares a struct as input. Its fields are written only here: what serde accepts, what refusals name
/// ([`Form::FIELDS`]) and what utoipa describes are the same.
///
/// The struct refuses unknown fields. `limits { … }` after it overrides [`Form::LIMIT_BYTES`] and
/// [`Form::too_large`].
macro_rules! form {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            // The parts of a type one by one: utoipa looks for `Option`, and a whole type would hide it.
            $($(#[$of_field:meta])* $field:ident: $outer:ident $(<$inner:ident>)?,)+
        }
        $(limits { $($limits:tt)* })?
    ) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        $visibility struct $name {
            $($(#[$of_field])* $field: $outer $(<$inner>)?,)+
        }

        impl $crate::web::request::Form for $name {
            const FIELDS: &'static [$crate::web::request::Field] = &[
                $($crate::web::request::Field::of::<$outer $(<$inner>)?>(stringify!($field)),)+
            ];
            $($($limits)*)?
        }
    };
}
pub(in crate::web) use form;

/// The type of a field.
pub trait Input {
    const TAKES: Takes;
    /// A field that may be left out may also be null in JSON.
    const IS_REQUIRED: bool = true;
}

impl<T: Input> Input for Option<T> {
    const TAKES: Takes = T::TAKES;
    const IS_REQUIRED: bool = false;
}

macro_rules! input {
    ($($of:ty => $takes:ident),+ $(,)?) => {
        $(impl Input for $of {
            const TAKES: Takes = Takes::$takes;
        })+
    };
}

input! {
    String => Text,
    i64 => Number,
    BodyItem => Reference,
    bool => Boolean,
    IgnoredAny => Anything,
    Vec<String> => Texts,
    Vec<i64> => Numbers,
    Vec<serde_json::Value> => Objects,
}

/// One field of a [`Form`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    takes: Takes,
    is_required: bool,
}

/// What a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Text,
    /// A whole number that fits into 64 bits.
    Number,
    /// A whole number or a string: an id, or `key:` and a key.
    Reference,
    Boolean,
    /// Any value. It is refused later, with a reason.
    Anything,
    /// An array of strings.
    Texts,
    /// An array of whole numbers.
    Numbers,
    /// An array of objects. Each is read on its own.
    Objects,
}

impl Field {
    /// Makes a field of this type.
    pub const fn of<T: Input>(name: &'static str) -> Self {
        Self {
            name,
            takes: T::TAKES,
            is_required: T::IS_REQUIRED,
        }
    }

    /// Makes the problem of this field.
    fn problem(&self, what: &str) -> Problem {
        Problem::malformed(self.name, format!("{}: {what}.", self.name))
    }

    fn is_array(&self) -> bool {
        matches!(self.takes, Takes::Texts | Takes::Numbers | Takes::Objects)
    }

    fn duplicate(&self) -> Problem {
        self.problem("it is given more than once; it takes one value")
    }

    fn missing(&self) -> Problem {
        self.problem(&format!("it is missing; it takes {}", self.takes))
    }

    fn out_of_range(&self) -> Problem {
        self.problem(&match self.takes {
            Takes::Text
            | Takes::Boolean
            | Takes::Anything
            | Takes::Texts
            | Takes::Numbers
            | Takes::Objects => {
                format!("it is a number; it takes {}", self.takes)
            }
            Takes::Number => format!(
                "it is out of range; it takes {} from {} to {}",
                self.takes,
                i64::MIN,
                i64::MAX
            ),
            Takes::Reference => format!("it is out of range; it takes {}", self.takes),
        })
    }

    /// Says what is wrong with this value, if anything is.
    fn wrong(&self, shape: Shape) -> Option<Problem> {
        match (self.takes, shape) {
            (_, Shape::Null) if !self.is_required => None,
            (Takes::Text, Shape::Text)
            | (Takes::Number, Shape::Number)
            | (Takes::Boolean, Shape::Boolean(_))
            | (Takes::Reference, Shape::Number | Shape::Text)
            | (Takes::Anything, _) => None,
            // The entries are checked last.
            (Takes::Texts | Takes::Numbers | Takes::Objects, Shape::Array) => None,
            (Takes::Number | Takes::Reference, Shape::LargeNumber) => Some(self.out_of_range()),
            _ => Some(self.problem(&format!("it is {shape}; it takes {}", self.takes))),
        }
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Text => "a string",
            Self::Number => "a whole number",
            Self::Reference => "a whole number, or \"key:\" and a key",
            Self::Boolean => "true or false",
            Self::Anything => "nothing",

            Self::Texts => "an array of strings",
            Self::Numbers => "an array of whole numbers",
            Self::Objects => "an array of objects",
        })
    }
}

/// Makes the problem of a name that no field has.
fn unknown(name: &str, fields: &[Field], what: &str) -> Problem {
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    let takes = match names.as_slice() {
        [] => format!("no {what}s are taken"),
        [one] => format!("the only {what} is {one}"),
        [first @ .., last] => format!("the {what}s are {} and {last}", first.join(", ")),
    };
    Problem::malformed(name, format!("{name}: there is no such {what}; {takes}."))
}

fn body(what: impl fmt::Display) -> Problem {
    Problem::malformed("body", format!("body: {what}."))
}

/// Says what is wrong with a body that is not a [`Form`] with these fields.
pub fn wrong_body(bytes: &[u8], fields: &[Field]) -> Problem {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return body("it is not UTF-8; it takes JSON in UTF-8");
    };
    let mut reader = serde_json::Deserializer::from_str(text);
    match ShapeOf.deserialize(&mut reader) {
        Err(error) => return not_json(&error),
        Ok(Shape::Object) => {}
        Ok(shape) => return body(format_args!("it is {shape}; it takes an object")),
    }
    if let Err(error) = reader.end() {
        return body(format_args!("more follows after its end, at {}", place(&error)));
    }
    let mut entries = Vec::new();
    let ended = Entries(&mut entries).deserialize(&mut serde_json::Deserializer::from_str(text));
    for (at, (name, shape)) in entries.iter().enumerate() {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            return unknown(name, fields, "field");
        };
        if entries[..at].iter().any(|(earlier, _)| earlier == name) {
            return field.duplicate();
        }
        let wrong = match (shape, &ended) {
            (Some(shape), _) => field.wrong(*shape),
            // The body is JSON, but reading it has failed.
            (None, Err(error)) if error.to_string().starts_with("number out of range") => {
                Some(field.out_of_range())
            }
            (None, _) => Some(field.problem("it has an escape like \\ud800, which is no character")),
        };
        if let Some(problem) = wrong {
            return problem;
        }
    }
    let is_missing = |field: &&Field| field.is_required && entries.iter().all(|(name, _)| name != field.name);
    match fields.iter().find(is_missing) {
        Some(field) => field.missing(),
        None => fields.iter().find(|field| field.is_array()).map_or_else(
            || body("it cannot be read"),
            |field| {
                field.problem(&format!(
                    "one of its entries is something else; it takes {}",
                    field.takes
                ))
            },
        ),
    }
}

fn not_json(error: &serde_json::Error) -> Problem {
    if error.is_eof() {
        body(format_args!("the JSON ends too early, at {}", place(error)))
    } else {
        body(format_args!("it is not JSON; the mistake is at {}", place(error)))
    }
}

/// Returns where the reader stopped. Lines and columns count from 1, columns in bytes.
fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// Says what is wrong with a query that is not a [`Form`] with these fields.
pub fn wrong_query(parameters: &[(String, String)], fields: &[Field]) -> Problem {
    for (at, (name, value)) in parameters.iter().enumerate() {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            return unknown(name, fields, "parameter");
        };
        if parameters[..at].iter().any(|(earlier, _)| earlier == name) {
            return field.duplicate();
        }
        if field.takes == Takes::Number && value.parse::<i64>().is_err() {
            let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            return if is_number {
                field.out_of_range()
            } else {
                field.problem("it takes a whole number")
            };
        }
        if field.takes == Takes::Boolean && !matches!(value.as_str(), "true" | "false") {
            return field.problem("it takes true or false");
        }
    }
    let is_missing =
        |field: &&Field| field.is_required && parameters.iter().all(|(name, _)| name != field.name);
    match fields.iter().find(is_missing) {
        Some(field) => field.missing(),
        None => unreadable_query(),
    }
}

/// Makes the problem of a query that is not a list of parameters.
pub fn unreadable_query() -> Problem {
    Problem::malformed(
        "query",
        "query: it cannot be read; it takes name=value, joined by &.",
    )
}

/// Makes the problem of a query beside a body. Its parameters would be ignored silently.
pub fn unexpected_query(fields: &[Field]) -> Problem {
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    Problem::malformed(
        "query",
        format!(
            "query: this takes no parameters; {} {} into the body, as JSON.",
            names.join(", "),
            if names.len() == 1 { "goes" } else { "go" }
        ),
    )
}

/// The kind of a JSON value, in JSON's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Null,
    Boolean(bool),
    /// A whole number that fits into 64 bits.
    Number,
    /// A whole number that does not.
    LargeNumber,
    /// Written with a point or an exponent.
    Decimal,
    Text,
    Array,
    Object,
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Null => "null",
            Self::Boolean(true) => "true",
            Self::Boolean(false) => "false",
            Self::Number | Self::LargeNumber => "a number",
            Self::Decimal => "a decimal number",
            Self::Text => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// Reads a value's shape. For an array or an object, checks only that it is JSON.
struct ShapeOf;

impl<'de> DeserializeSeed<'de> for ShapeOf {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Shape, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeOf {
    type Value = Shape;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Boolean(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(if i64::try_from(value).is_ok() {
            Shape::Number
        } else {
            Shape::LargeNumber
        })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        // serde_json reads a whole number beyond 64 bits as a float.
        Ok(if value.abs() >= i64::MAX as f64 {
            Shape::LargeNumber
        } else {
            Shape::Decimal
        })
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Shape, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Shape::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Shape, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Shape::Object)
    }
}

/// Reads an object's names and the shapes of its values. The last shape is `None` if its
/// value cannot be read.
struct Entries<'a>(&'a mut Vec<(String, Option<Shape>)>);

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(name) = object.next_key()? {
            self.0.push((name, None));
            let shape = object.next_value_seed(ShapeOf)?;
            if let Some(last) = self.0.last_mut() {
                last.1 = Some(shape);
            }
        }
        Ok(())
    }
}
