//! Polls and items as HTML, for readers without script and until the script runs. The elements of embed.js
//! stand around this HTML, and replace it once they have the counts. Names are always text, never markup. Words
//! are English, and say so: a frame may be in another language.

use std::fmt::{self, Display};

use crate::domain::Moment;
use crate::web::api::items::ItemBody;
use crate::web::api::polls::PollBody;
use crate::web::pages::html::Escaped;

/// A list of cards, and the address of the next page.
pub(in crate::web) struct Section<'a, T> {
    pub heading: &'static str,
    pub cards: Vec<T>,
    /// The query parameter of the next page, and its value.
    pub next: Option<(&'static str, i64)>,
    pub search: Option<&'a str>,
}

impl<T: Display> Display for Section<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cards.is_empty() && self.next.is_none() {
            return Ok(());
        }
        writeln!(
            out,
            "<section>\n<h2>{}</h2>\n<ul class=\"cards\" role=\"list\">",
            self.heading
        )?;
        for card in &self.cards {
            writeln!(out, "<li{card}</li>")?;
        }
        out.write_str("</ul>\n")?;
        if let Some((name, next)) = self.next {
            let search = self.search.map(|text| {
                let encoded = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
                format!("&amp;search={encoded}")
            });
            writeln!(
                out,
                "<a class=\"more\" data-next=\"{next}\" href=\"/?{name}={next}{}\">Show more</a>",
                search.unwrap_or_default()
            )?;
        }
        out.write_str("</section>\n")
    }
}

/// A poll in a list: the content of its `<li>`.
pub(in crate::web) struct PollCard(pub PollBody);

impl Display for PollCard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(poll) = self;
        let (id, title) = (poll.id, Escaped(&poll.title));
        write!(
            out,
            "><tally-poll poll=\"{id}\"><h3 dir=\"auto\">{title}</h3>{}</tally-poll>\
             <div class=\"below\"><a href=\"/polls/{id}\" aria-label=\"Open and share: {title}\">Open and share</a></div>",
            Results(poll)
        )
    }
}

/// An item in a list, as [`PollCard`].
pub(in crate::web) struct ItemRow<'a>(pub ItemBody<'a>);

impl Display for ItemRow<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(item) = self;
        let (id, name) = (item.id, Escaped(item.name));
        write!(
            out,
            " class=\"row\"><a href=\"/items/{id}\" dir=\"auto\">{name}</a>\
             <tally-vote item=\"{id}\" no-name>{}</tally-vote>",
            Held(item.vote_count)
        )
    }
}

/// The content of the page of one poll or item, below its heading.
pub(in crate::web) enum Single<'a> {
    Poll(PollBody),
    Item(ItemBody<'a>),
}

impl Display for Single<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("<ul class=\"cards\" role=\"list\"><li>")?;
        match self {
            Self::Poll(poll) => write!(
                out,
                "<tally-poll poll=\"{}\" no-title>{}</tally-poll>",
                poll.id,
                Results(poll)
            )?,
            Self::Item(item) => write!(
                out,
                "<tally-vote item=\"{}\" no-name>{}</tally-vote>",
                item.id,
                Held(item.vote_count)
            )?,
        }
        out.write_str("</li></ul>")
    }
}

/// The content of the page for a frame: the vote with its heading.
pub(in crate::web) struct Framed<'a>(pub Single<'a>);

impl Display for Framed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Single::Poll(poll) => write!(
                out,
                "<h1 id=\"title\" dir=\"auto\">{}</h1>\n<tally-poll poll=\"{}\" no-title>{}</tally-poll>",
                Escaped(&poll.title),
                poll.id,
                Results(poll)
            ),
            Single::Item(item) => write!(
                out,
                "<div class=\"line\"><h1 id=\"title\" dir=\"auto\">{}</h1>\n\
                 <tally-vote item=\"{}\" no-name>{}</tally-vote></div>",
                Escaped(item.name),
                item.id,
                Held(item.vote_count)
            ),
        }
    }
}

/// A poll in a preview: its results, unless they are hidden.
pub(in crate::web) struct Summary<'a>(pub &'a PollBody);

impl Display for Summary<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(poll) = self;
        for (at, choice) in poll.choices.iter().enumerate() {
            let between = if at == 0 { "" } else { ", " };
            write!(out, "{between}{}", choice.name)?;
            if let Some(share) = choice.share {
                write!(out, " {}", Percent(share))?;
            }
        }
        match poll.voter_count {
            Some(voters) => write!(out, ". {}.", Plural(voters, "voter")),
            None => out.write_str("."),
        }
    }
}

/// The choices of a poll with their bars, and notes about the poll.
struct Results<'a>(&'a PollBody);

impl Display for Results<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(poll) = self;
        let closed = if poll.state == "open" { "" } else { " closed" };
        // Who may choose several sees boxes to tick, others a round mark.
        let several = if poll.max_choices == Some(1) {
            ""
        } else {
            " several"
        };
        write!(out, "<ul class=\"choices{closed}{several}\" role=\"list\">")?;
        for choice in &poll.choices {
            out.write_str("<li>")?;
            if let Some(share) = choice.share {
                // An attribute, because the page's policy allows no inline style.
                write!(
                    out,
                    "<svg class=\"bar\" aria-hidden=\"true\"><rect width=\"{:.1}%\" height=\"100%\"/></svg>",
                    share * 100.0
                )?;
            }
            write!(out, "<span dir=\"auto\">{}</span>", Escaped(&choice.name))?;
            out.write_str("<span class=\"figures\">")?;
            if let Some(count) = choice.vote_count {
                write!(
                    out,
                    "<span lang=\"en\" dir=\"ltr\">{}</span>",
                    Plural(count, "vote")
                )?;
            }
            if let Some(share) = choice.share {
                write!(out, "<b>{}</b>", Percent(share))?;
            }
            out.write_str("</span></li>")?;
        }
        out.write_str("</ul><p class=\"note\" lang=\"en\" dir=\"ltr\">")?;
        if let Some(voters) = poll.voter_count {
            write!(out, "{}. ", Plural(voters, "voter"))?;
        }
        if poll.max_choices != Some(1) && poll.choices.iter().any(|choice| choice.share.is_some()) {
            out.write_str("Percentages are of votes. ")?;
        }
        let when = match poll.state {
            "closed" if poll.r#final => ("Final since", poll.closes_at),
            "closed" => ("Closed", poll.closes_at),
            "not-open-yet" => ("Opens", poll.opens_at),
            _ => ("Closes", poll.closes_at),
        };
        if let (said, Some(moment)) = when {
            write!(out, "{said} {}. ", Utc(moment))?;
        }
        match poll.max_choices {
            _ if poll.state != "open" => {}
            Some(1) => {}
            Some(choices) => write!(out, "Choose up to {choices}. ")?,
            None => out.write_str("Choose as many as you like. ")?,
        }
        if poll.state != "closed" && !poll.results_before_close {
            out.write_str("Results show when it closes.")?;
        }
        out.write_str("</p>")
    }
}

/// The count of an item. `None`: its poll hides the count.
struct Held(Option<i64>);

impl Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("<p class=\"held\">")?;
        match self.0 {
            Some(count) => {
                let unit = if count == 1 { "vote" } else { "votes" };
                write!(
                    out,
                    "{}<span class=\"unseen\" lang=\"en\"> {unit}</span>",
                    Grouped(count)
                )?;
            }
            None => out.write_str("–")?,
        }
        out.write_str("</p>")
    }
}

/// A number with a comma after every third digit.
struct Grouped(i64);

impl Display for Grouped {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.unsigned_abs().to_string();
        if self.0 < 0 {
            out.write_str("-")?;
        }
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                out.write_str(",")?;
            }
            write!(out, "{digit}")?;
        }
        Ok(())
    }
}

struct Plural(i64, &'static str);

impl Display for Plural {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = if self.0 == 1 { "" } else { "s" };
        write!(out, "{} {}{ending}", Grouped(self.0), self.1)
    }
}

/// A share from 0 to 1, as a whole percentage.
struct Percent(f64);

impl Display for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.0}%", (self.0 * 100.0).round())
    }
}

/// A time in UTC, to the minute.
struct Utc(Moment);

impl Display for Utc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match text.split_once('T') {
            Some((day, time)) => {
                let minute = time.get(..5).unwrap_or(time);
                write!(out, "<time datetime=\"{text}\">{day} {minute} UTC</time>")
            }
            None => out.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_comma_at_every_third_digit() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-12_345, "-12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(Grouped(number).to_string(), text);
        }
        assert_eq!(Plural(1, "vote").to_string(), "1 vote");
        assert_eq!(Plural(-1, "vote").to_string(), "-1 votes");
    }

    #[test]
    fn a_moment_is_shown_to_the_minute() {
        let moment: Moment = "2026-11-23T14:05:59.5+01:00".parse().expect("a moment");
        let text = Utc(moment).to_string();
        assert!(text.ends_with(">2026-11-23 13:05 UTC</time>"), "{text}");
    }

    #[test]
    fn the_address_of_the_next_page_keeps_the_search() {
        let section = Section {
            heading: "Items",
            cards: vec![">a"],
            next: Some(("after", 7)),
            search: Some("a&b \"c\""),
        };
        let text = section.to_string();
        assert!(
            text.contains("href=\"/?after=7&amp;search=a%26b%20%22c%22\""),
            "{text}"
        );
    }
}
