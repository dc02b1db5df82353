//! `tally cell`: makes the next cell, and writes the file of the router before the cells.
//!
//! - `router`: the files of HAProxy and nginx.
//! - `ranges`: ranges of numbers as regular expressions.

mod ranges;
mod router;

use crate::config::cells::{CellRouter, RouterFor};
use crate::domain::Cell;
use crate::telemetry;

/// Prints what to do with a database that has just become this cell.
pub fn print_next_steps(cell: Cell) {
    let (first, last) = (cell.before_ids() + 1, cell.last_id());
    let (cells, before) = (cell.get() + 1, cell.get().saturating_sub(1));
    telemetry::print(format_args!(
        "this database is cell {cell}: its ids are {first} to {last}\n\
         1. Make its logins, and give it a Redis, servers and workers of its own (docs/operating/cells.md).\n\
         2. Start its servers with TALLY_CELL={cell} and TALLY_CELLS={cells}, and otherwise with the settings of the other\n   \
            cells: TALLY_KEY_CELLS, TALLY_COOKIE_KEYS, TALLY_JWT_…, TALLY_ADDRESS_KEYS, TALLY_THROTTLE, TALLY_ORIGINS.\n\
         3. Make the API keys of programs in it, as in the other cells.\n\
         4. Write the router's file anew, with one --servers for each cell, and reload the router:\n   \
            tally cell router haproxy --servers … --servers <the servers of cell {cell}> --new-from <the first that takes new items>\n\
         5. Only then restart the servers of cell {before} with TALLY_CELLS={cells}: its lists lead to cell {cell} from then on.\n   \
            Those of the other cells may follow when it suits.\n"
    ));
}

/// Prints the file of a router.
pub fn print_router(router: &CellRouter) {
    telemetry::print(match router.program {
        RouterFor::Haproxy => router::haproxy(router),
        RouterFor::Nginx => router::nginx(router),
    });
}
