//! Which items a first vote creates.

use std::fmt;
use std::str::FromStr;

use crate::domain::{ItemKey, ItemName, ItemRules, NewItem, Value};

/// What a vote on an unknown key creates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreateItems {
    /// Nothing: there is no item to vote on.
    #[default]
    Nothing,
    /// An item that takes up-votes and down-votes.
    Any,
    /// An item without down-votes. A down-vote creates none.
    Likes,
}

impl CreateItems {
    /// The item that a vote of this value on this key creates.
    pub fn item(self, key: &ItemKey, value: Value) -> Option<NewItem> {
        let takes_down_votes = match self {
            Self::Any => true,
            Self::Likes if value == Value::UP => false,
            Self::Nothing | Self::Likes => return None,
        };
        // Any key can be a name, if it is short enough and not blank.
        let name: String = key.as_str().chars().take(ItemName::LIMIT_CHARACTERS).collect();
        Some(NewItem {
            name: ItemName::parse(name).ok()?,
            key: Some(key.clone()),
            rules: ItemRules {
                takes_down_votes,
                ..ItemRules::DEFAULT
            },
        })
    }
}

impl FromStr for CreateItems {
    type Err = String;

    /// Reads what other switches take too, and `likes`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Self::Any),
            "false" | "f" | "no" | "n" | "off" | "0" => Ok(Self::Nothing),
            "likes" => Ok(Self::Likes),
            _ => Err("it takes true, false or likes".to_owned()),
        }
    }
}

impl fmt::Display for CreateItems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Nothing => "false",
            Self::Any => "true",
            Self::Likes => "likes",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_switch_with_a_third_position() {
        for one in [CreateItems::Nothing, CreateItems::Any, CreateItems::Likes] {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert_eq!("Yes".parse(), Ok(CreateItems::Any));
        assert_eq!("0".parse(), Ok(CreateItems::Nothing));
        assert_eq!(
            "like".parse::<CreateItems>(),
            Err("it takes true, false or likes".to_owned())
        );
    }

    #[test]
    fn an_item_has_its_key_as_its_name_and_takes_down_votes_unless_it_is_for_likes() {
        let key = |text: &str| ItemKey::parse(text.to_owned()).expect("a key");
        let taken = |what: CreateItems| {
            what.item(&key("post-42"), Value::UP)
                .map(|item| item.rules.takes_down_votes)
        };
        assert_eq!(taken(CreateItems::Nothing), None);
        assert_eq!(taken(CreateItems::Any), Some(true));
        assert_eq!(taken(CreateItems::Likes), Some(false));
        assert_eq!(CreateItems::Likes.item(&key("post-42"), Value::DOWN), None);
        let item = CreateItems::Any
            .item(&key("post-42"), Value::DOWN)
            .expect("an item");
        assert_eq!(item.name.as_str(), "post-42");
        assert_eq!(
            CreateItems::Any.item(&key(" "), Value::UP),
            None,
            "no name is blank"
        );
    }
}
