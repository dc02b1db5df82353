//! What a node's reply says of where a call belongs.

use redis::{ServerError, Value};

use super::nodes::At;

/// What a reply of a node means for the call that it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leads {
    /// It is an answer, or an error that another node would give as well.
    Nowhere,
    /// It did not run: another node has the bucket.
    To(At),
    /// It did not run. This node has those of the bucket's keys that the answering one has handed over.
    AskedTo(At),
    /// It did not run: the nodes do not serve the bucket now, or have another owner for it.
    Astray,
}

/// Reads a reply. `from`: the node that sent it.
pub fn leads(reply: &Value, from: &At) -> Leads {
    let Value::ServerError(error) = reply else {
        return Leads::Nowhere;
    };
    let to = || error.details().and_then(|text| place(text, from));
    match ServerError::code(error) {
        "MOVED" => to().map_or(Leads::Astray, Leads::To),
        "ASK" => to().map_or(Leads::Astray, Leads::AskedTo),
        "CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING" => Leads::Astray,
        // TRYAGAIN: keys of a call are on both sides of a move. It ends soon, and until then nothing else helps.
        _ => Leads::Nowhere,
    }
}

/// The node in `<slot> <host>:<port>`. Without a host, or with `?` for a name that was not announced, it is that of the
/// node that says so.
fn place(text: &str, from: &At) -> Option<At> {
    let (_, address) = text.trim().split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    Some(At {
        host: if matches!(host, "" | "?") {
            &from.host
        } else {
            host
        }
        .to_owned(),
        port: port.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> At {
        let host = host.to_owned();
        At { host, port }
    }

    #[test]
    fn each_reply_says_whether_the_call_ran_and_where_it_belongs() {
        let from = at("10.0.0.1", 7000);
        let said = |line: &str| {
            leads(
                &redis::parse_redis_value(line.as_bytes()).expect("a reply"),
                &from,
            )
        };
        for (line, meant) in [
            ("-MOVED 125 10.0.0.2:7001\r\n", Leads::To(at("10.0.0.2", 7001))),
            ("-MOVED 125 ::1:7001\r\n", Leads::To(at("::1", 7001))),
            ("-MOVED 125 :7001\r\n", Leads::To(at("10.0.0.1", 7001))),
            ("-MOVED 125 ?:7001\r\n", Leads::To(at("10.0.0.1", 7001))),
            ("-MOVED 125\r\n", Leads::Astray),
            ("-ASK 125 10.0.0.2:7001\r\n", Leads::AskedTo(at("10.0.0.2", 7001))),
            ("-CLUSTERDOWN The cluster is down\r\n", Leads::Astray),
            (
                "-READONLY You can't write against a read only replica.\r\n",
                Leads::Astray,
            ),
            (
                "-LOADING Redis is loading the dataset in memory\r\n",
                Leads::Astray,
            ),
            ("-MASTERDOWN AnyConnection with MASTER is down\r\n", Leads::Astray),
            (
                "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
                Leads::Nowhere,
            ),
            ("-NOSCRIPT No matching script.\r\n", Leads::Nowhere),
            (
                "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
                Leads::Nowhere,
            ),
            ("-ERR something else\r\n", Leads::Nowhere),
            ("$5\r\nMOVED\r\n", Leads::Nowhere),
        ] {
            assert_eq!(said(line), meant, "{line}");
        }
    }
}
