//! How a frame looks: what its address says beside the item or the poll.

use actix_web::web;
use utoipa::IntoParams;

use crate::web::describe::values;
use crate::web::limits::{ACCENT_LENGTH_CHARACTERS, LANGUAGE_LIMIT_CHARACTERS};
use crate::web::problem::Problem;
use crate::web::request::form;

/// The language of a frame whose address names none.
const DEFAULT_LANGUAGE: &str = "en";
/// Languages that are written from right to left, by the first subtag.
const RIGHT_TO_LEFT: [&str; 9] = ["ar", "ckb", "dv", "fa", "he", "ps", "sd", "ur", "yi"];
/// The longest first subtag, and the longest of the others.
const SUBTAG_LIMIT_CHARACTERS: usize = 8;

form! {
    /// The query of a frame's address.
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct FrameForm {
        /// The language of the vote. Defaults to `en`.
        #[param(value_type = Option<values::FrameLanguage>, example = "de")]
        lang: Option<String>,
        /// The colour of what is pressed.
        #[param(value_type = Option<values::FrameAccent>, example = "3546c9")]
        accent: Option<String>,
        /// The colour scheme, where the page around the frame has only one. Defaults to the visitor's.
        #[param(value_type = Option<values::FrameScheme>, example = "dark")]
        scheme: Option<String>,
    }
}

/// A colour scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    /// Both.
    const ALL: [Self; 2] = [Self::Light, Self::Dark];

    /// Its name in addresses and in CSS.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// How a frame looks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::web) struct Look {
    lang: Option<String>,
    accent: Option<String>,
    scheme: Option<Scheme>,
}

impl TryFrom<FrameForm> for Look {
    type Error = Problem;

    fn try_from(form: FrameForm) -> Result<Self, Problem> {
        Ok(Self {
            lang: form.lang.map(language).transpose()?,
            accent: form.accent.map(accent).transpose()?,
            scheme: form.scheme.map(|text| scheme(&text)).transpose()?,
        })
    }
}

impl Look {
    /// Reads the parameters of a frame in a page's query, and ignores all others.
    ///
    /// # Errors
    /// Fails when a value is wrong.
    pub(in crate::web) fn within(query: &str) -> Result<Self, Problem> {
        let mut form = FrameForm {
            lang: None,
            accent: None,
            scheme: None,
        };
        let pairs = web::Query::<Vec<(String, String)>>::from_query(query);
        for (name, value) in pairs.map(web::Query::into_inner).unwrap_or_default() {
            match name.as_str() {
                "lang" => form.lang = Some(value),
                "accent" => form.accent = Some(value),
                "scheme" => form.scheme = Some(value),
                _ => {}
            }
        }
        form.try_into()
    }

    /// Returns the query of a frame's address, with its question mark. Empty: the frame looks as by default.
    pub(in crate::web) fn query(&self) -> String {
        let named = [
            ("lang", self.lang.as_deref()),
            ("accent", self.accent.as_deref()),
            ("scheme", self.scheme.map(Scheme::name)),
        ];
        // Each value consists of characters that a query has as they are.
        let pairs = named
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let pairs: Vec<String> = pairs.collect();
        match pairs.is_empty() {
            true => String::new(),
            false => format!("?{}", pairs.join("&")),
        }
    }

    /// The language of the page.
    pub(super) fn language(&self) -> &str {
        self.lang.as_deref().unwrap_or(DEFAULT_LANGUAGE)
    }

    /// The direction of the page.
    pub(super) fn direction(&self) -> &'static str {
        let first = self.language().split('-').next().unwrap_or_default();
        match RIGHT_TO_LEFT.iter().any(|one| one.eq_ignore_ascii_case(first)) {
            true => "rtl",
            false => "ltr",
        }
    }

    /// The six digits of the page's colour, or nothing.
    pub(super) fn accent(&self) -> &str {
        self.accent.as_deref().unwrap_or_default()
    }

    /// The colour scheme. `None`: the visitor's.
    pub(super) fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }
}

fn language(text: String) -> Result<String, Problem> {
    let is_subtag = |part: &str| {
        (1..=SUBTAG_LIMIT_CHARACTERS).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let first = text.split('-').next().unwrap_or_default();
    let is_language = first.len() > 1
        && first.bytes().all(|byte| byte.is_ascii_alphabetic())
        && text.split('-').all(is_subtag)
        && text.len() <= LANGUAGE_LIMIT_CHARACTERS;
    match is_language {
        true => Ok(text),
        false => Err(Problem::invalid(
            "lang",
            "lang is not a language tag; it takes one like de or pt-BR.",
        )),
    }
}

fn accent(text: String) -> Result<String, Problem> {
    match text.len() == ACCENT_LENGTH_CHARACTERS && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(Problem::invalid(
            "accent",
            "accent is not a colour; it takes six hexadecimal digits without #, like 3546c9.",
        )),
    }
}

fn scheme(text: &str) -> Result<Scheme, Problem> {
    let known = Scheme::ALL.into_iter().find(|scheme| scheme.name() == text);
    known.ok_or_else(|| Problem::invalid("scheme", "scheme is unknown; it takes light or dark."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(query: &str) -> Option<String> {
        let problem = Look::within(query).err()?;
        serde_json::to_value(problem.to_body()).expect("JSON")["field"]
            .as_str()
            .map(str::to_owned)
    }

    #[test]
    fn an_address_says_how_its_frame_looks_and_the_same_address_comes_out() {
        let look = Look::within("lang=pt-BR&utm_source=x&accent=3546C9&scheme=dark").expect("a look");
        assert_eq!(look.query(), "?lang=pt-BR&accent=3546c9&scheme=dark");
        assert_eq!((look.language(), look.direction()), ("pt-BR", "ltr"));
        assert_eq!(Look::within(&look.query()[1..]).expect("a look"), look);
        let plain = Look::within("utm_source=x").expect("a look");
        assert_eq!(plain, Look::default());
        assert_eq!(
            (plain.query(), plain.language(), plain.scheme()),
            (String::new(), "en", None)
        );
    }

    #[test]
    fn a_language_says_in_which_direction_it_is_written() {
        for (lang, direction) in [("ar", "rtl"), ("HE-IL", "rtl"), ("de", "ltr"), ("arn", "ltr")] {
            let look = Look::within(&format!("lang={lang}")).expect("a look");
            assert_eq!(look.direction(), direction, "{lang}");
        }
    }

    #[test]
    fn what_is_no_language_no_colour_and_no_scheme_is_refused_by_name() {
        for (query, name) in [
            ("lang=", "lang"),
            ("lang=d", "lang"),
            ("lang=de_DE", "lang"),
            ("lang=de-", "lang"),
            ("lang=de-abcdefghi", "lang"),
            ("lang=%22%3E%3Cscript%3E", "lang"),
            ("lang=de-aaaaaaaa-aaaaaaaa-aaaaaaaa-aaaaaaaa", "lang"),
            ("accent=%233546c9", "accent"),
            ("accent=", "accent"),
            ("accent=red", "accent"),
            ("accent=3546cg", "accent"),
            ("accent=3546c9;", "accent"),
            ("scheme=", "scheme"),
            ("scheme=Light", "scheme"),
        ] {
            assert_eq!(field(query).as_deref(), Some(name), "{query}");
        }
    }
}
