//! The files of routers before the cells: HAProxy's, and nginx's.
//!
//! Both send a request to the cell of what it names first: an id by its range, a list by the id where its page
//! begins. HAProxy computes the cell. nginx cannot divide: it has a pattern for each cell, and follows a server's 421
//! where it does not know the cell.

use std::fmt::Write as _;

use super::ranges::pattern;
use crate::config::cells::CellRouter;
use crate::domain::Cell;

/// What stands at the head of both files. `program` is what prints the file.
fn head(cells: usize, program: &str) -> String {
    format!(
        "# A router before {cells} cells of Tally: docs/operating/cells.md. `tally cell router {program}` prints it for your\n\
         # cells. Put in your certificate. On the servers: TALLY_LISTEN, TALLY_PROXIES with this machine's address,\n\
         # TALLY_DRAIN=5s, TALLY_CELLS={cells}.\n"
    )
}

/// Writes the file of HAProxy (2.5 or later).
pub fn haproxy(router: &CellRouter) -> String {
    let cells = router.servers.len();
    let last = cells - 1;
    let (new_cells, new_from) = (router.new_cells(), router.new_from);
    let key_cells = router.key_cells;
    let mut text = head(cells, "haproxy");
    text += &format!(
        r#"
global
    # Each takes two open files: `ulimit -n` must be above twice as many.
    maxconn 8000

defaults
    mode http
    option forwardfor
    # A batch of votes and a new item with an own key name their cell in the body.
    option http-buffer-request
    timeout connect 2s
    timeout client 60s
    # Longer than a vote takes at most: Tally answers each request, if only with 503.
    timeout server 60s
    timeout http-request 10s
    timeout check 1s
    # Only a server that refused the connection did not get the request: then another one of its cell is asked.
    retries 3
    retry-on conn-failure
    option redispatch 1

frontend votes
    bind :443 ssl crt /etc/haproxy/votes.pem alpn h2,http/1.1

    acl by_id      path_beg /v1/items/ /v1/polls/ /v1/votes/ /v1/voidings/ /v1/voter-edits/ /v1/api-keys/
    acl page_by_id path_beg /items/ /polls/
    acl key_apart  var(txn.names) -m str key:
    acl writes     method POST
    acl of_items   path /v1/items
    acl of_polls   path /v1/polls

    # What the request names first: an id, or key: and an own key.
    http-request set-var(txn.names) path,field(4,/),url_dec if by_id
    http-request set-var(txn.names) path,field(3,/),url_dec if page_by_id
    http-request set-var-fmt(txn.names) key:%[url_param(key),url_dec(1)] if key_apart
    http-request set-var(txn.names) "url_param(polls),url_dec(1),field(1,',')" if {{ url_param(polls) -m found }}
    http-request set-var(txn.names) "url_param(items),url_dec(1),field(1,',')" if {{ url_param(items) -m found }}
    http-request set-var(txn.names) "url_param(ids),url_dec(1),field(1,',')" if of_items {{ url_param(ids) -m found }}
    http-request set-var(txn.names) url_param(poll),url_dec(1) if {{ path /v1/items/top }}
    http-request set-var(txn.names) url_param(url),url_dec(1),field(5,/) if {{ path /oembed }}
    http-request set-var(txn.names) req.body,json_query('$.votes[0].item_id') if writes {{ path /v1/votes }}
    http-request set-var(txn.number) req.body,json_query('$.votes[0].item_id','int') if writes {{ path /v1/votes }}
    http-request set-var(txn.names) var(txn.number) if {{ var(txn.number) -m found }}
    http-request set-var(txn.key) req.body,json_query('$.key') if writes of_items || writes of_polls
    http-request set-var-fmt(txn.names) key:%[var(txn.key)] if {{ var(txn.key) -m found }}

    # A cell has 2^40 ids. Of a key, what stands before the first slash decides (TALLY_KEY_CELLS={key_cells}).
    http-request set-var(txn.cell) var(txn.names),div(1099511627776) if {{ var(txn.names) -m reg ^[0-9]+$ }}
    http-request set-var(txn.cell) var(txn.names),bytes(4),field(1,/),crc32,mod({key_cells}) if {{ var(txn.names) -m beg key: }}
    # A list begins after an id. Polls begin before one, with the last cell.
    http-request set-var(txn.cell) url_param(after),div(1099511627776) if {{ path / /v1/items }} {{ url_param(after) -m reg ^[0-9]+$ }}
    http-request set-var(txn.cell) url_param(before),sub(1),div(1099511627776) if {{ path / /v1/polls }} {{ url_param(before) -m reg ^[1-9][0-9]*$ }}
    http-request set-var(txn.cell) int({last}) if of_polls !writes !{{ var(txn.cell) -m found }}
    # New items and polls without an own key go to any of the cells that take them.
    http-request set-var(txn.cell) rand({new_cells}),add({new_from}) if writes of_items !{{ var(txn.cell) -m found }}
    http-request set-var(txn.cell) rand({new_cells}),add({new_from}) if writes of_polls !{{ var(txn.cell) -m found }}
    # Whoever says the cell, such as an operator, gets it.
    http-request set-var(txn.cell) req.hdr(Tally-Cell) if {{ req.hdr(Tally-Cell) -m reg ^[0-9]+$ }}

    use_backend cell%[var(txn.cell)] if {{ var(txn.cell) -m found }}
    default_backend cell0
"#
    );
    for number in 0..cells {
        text.push('\n');
        text += &backend(router, number);
    }
    text
}

/// Writes the part of HAProxy's file for one cell.
fn backend(router: &CellRouter, number: usize) -> String {
    let mut text = format!(
        "backend cell{number}\n    \
             balance leastconn\n    \
             option httpchk GET /health/ready\n    \
             http-check expect status 200\n    \
             # A server that drains is out within a second or two.\n    \
             default-server check inter 1s fall 1 rise 1\n"
    );
    for (at, address) in router.servers[number].0.iter().enumerate() {
        // Writing into a String never fails.
        let _ = writeln!(text, "    server server{} {address}", at + 1);
    }
    text
}

/// Writes the file of nginx (1.18 or later).
pub fn nginx(router: &CellRouter) -> String {
    let cells = router.servers.len();
    let mut text = head(cells, "nginx");
    text += "# For /etc/nginx/conf.d/, which nginx reads within `http`.\n";
    for (number, servers) in router.servers.iter().enumerate() {
        let _ = writeln!(text, "\nupstream cell{number} {{");
        text += "    # max_fails=0: a server that refused once is asked again.\n";
        for address in &servers.0 {
            let _ = writeln!(text, "    server {address} max_fails=0;");
        }
        text += "    keepalive 64;\n    keepalive_timeout 2s;                            # less than TALLY_DRAIN\n}\n";
    }
    text += r#"
# The id that the request names first, in its path or else in its query.
map $uri $tally_of_path {
    default "";
    "~^/v1/(?:items|polls|votes|voidings|voter-edits|api-keys)/(?<tally_id>[0-9]+)(?:/|$)" $tally_id;
    "~^/(?:items|polls)/(?<tally_page_id>[0-9]+)(?:/|$)" $tally_page_id;
}
map "$tally_of_path,$arg_ids,$arg_items,$arg_polls,$arg_poll" $tally_names {
    default "";
    "~^,*(?<tally_first>[0-9]+)(?:,|%2[Cc]|$)" $tally_first;
}
"#;
    let ranges = |beyond: u64| -> String {
        let numbers = (0..=u16::try_from(cells - 1).unwrap_or_default()).filter_map(Cell::new);
        let lines = numbers.map(|cell| {
            let (low, high) = (cell.before_ids().unsigned_abs(), cell.last_id().unsigned_abs());
            format!(
                "    \"~^(?:{})$\" cell{cell};\n",
                pattern(low + beyond, high + beyond)
            )
        });
        lines.collect()
    };
    for (what, of, into, beyond) in [
        ("Each cell has 2^40 ids.", "$tally_names", "$tally_of_id", 0),
        (
            "A list of items begins after an id …",
            "$arg_after",
            "$tally_of_after",
            0,
        ),
        (
            "… and one of polls before an id.",
            "$arg_before",
            "$tally_of_before",
            1,
        ),
    ] {
        let _ = write!(
            text,
            "# {what}\nmap {of} {into} {{\n    default \"\";\n{}}}\n",
            ranges(beyond)
        );
    }
    text += "# New items and polls go to any of the cells that take them.\n";
    text += "split_clients $request_id $tally_new {\n";
    let (new_cells, new_from) = (u32::from(router.new_cells()), u32::from(router.new_from));
    for number in new_from..new_from + new_cells - 1 {
        let _ = writeln!(text, "    {:.2}% cell{number};", 100.0 / f64::from(new_cells));
    }
    let last = cells - 1;
    let _ = writeln!(text, "    * cell{};\n}}", new_from + new_cells - 1);
    text += &format!(
        r#"# Whoever says the cell, such as an operator, gets it. What names nothing goes to the first cell.
map "$http_tally_cell:$tally_of_id:$tally_of_after:$tally_of_before:$request_method:$uri" $tally_cell {{
    default cell0;
    "~^(?<tally_said>[0-9]+):" cell$tally_said;
    "~^:(?<tally_by_id>cell[0-9]+):" $tally_by_id;
    "~^::(?<tally_by_after>cell[0-9]+):[^:]*:[^:]*:(?:/|/v1/items)$" $tally_by_after;
    "~^::[^:]*:(?<tally_by_before>cell[0-9]+):[^:]*:(?:/|/v1/polls)$" $tally_by_before;
    "~:POST:/v1/(?:items|polls)$" $tally_new;
    "~:/v1/polls$" cell{last};
}}

server {{
    listen 443 ssl;
    server_name votes.example.org;
    ssl_certificate     /etc/nginx/votes.crt;
    ssl_certificate_key /etc/nginx/votes.key;

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_connect_timeout 2s;
    # A POST that was sent to one server is not sent to another.
    proxy_next_upstream error timeout;

    location / {{
        proxy_pass http://$tally_cell;
        # What lies in another cell: its server says in which, and has done nothing. So for own keys and batches.
        proxy_intercept_errors on;
        error_page 421 = @other_cell;
    }}
    location @other_cell {{
        set $tally_other $upstream_http_tally_cell;
        proxy_pass http://cell$tally_other;
    }}
}}
"#
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::cells::RouterFor;

    fn two(program: RouterFor) -> CellRouter {
        let servers = |text: &str| text.parse().expect("addresses");
        CellRouter {
            program,
            servers: vec![
                servers("10.0.0.11:8080,10.0.0.12:8080"),
                servers("10.0.1.11:8080,10.0.1.12:8080"),
            ],
            key_cells: 1,
            new_from: 0,
        }
    }

    #[test]
    fn new_items_go_to_the_cells_that_take_them() {
        let mut router = two(RouterFor::Haproxy);
        assert!(haproxy(&router).contains("rand(2),add(0)"));
        assert!(nginx(&router).contains("    50.00% cell0;\n    * cell1;\n"));
        router.new_from = 1;
        assert!(haproxy(&router).contains("rand(1),add(1)"));
        assert!(nginx(&router).contains("$tally_new {\n    * cell1;\n}"));
    }
}
