//! Cells: Tallys side by side, each with a Postgres and a Redis of its own. An id says in which cell it was drawn.

use std::fmt;
use std::str::FromStr;

/// A cell draws its ids from a range of 2⁴⁰ numbers, about 10¹².
const ID_BITS: u32 = 40;
/// The most cells. All their ids are below 2⁵³, so that JavaScript's numbers hold them.
pub const CELLS_LIMIT: u16 = 1 << (53 - ID_BITS);

/// A cell, by its number: one Postgres primary, one Redis, and their servers and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell(u16);

impl Cell {
    /// The first cell. A Tally that is not divided is this cell.
    pub const FIRST: Self = Self(0);

    /// From its number; `None` if it is not below [`CELLS_LIMIT`].
    pub fn new(number: u16) -> Option<Self> {
        (number < CELLS_LIMIT).then_some(Self(number))
    }

    /// The cell that draws this id; `None` if no cell does.
    pub fn of_id(id: i64) -> Option<Self> {
        u16::try_from(id >> ID_BITS).ok().and_then(Self::new)
    }

    /// The cell of a key, where keys lie in the first `cells` cells.
    ///
    /// What stands before the first slash decides, so that keys such as `page-7/a` and `page-7/b` share a cell. It is
    /// CRC-32, as HAProxy computes it, modulo the cells (deploy/haproxy-cells.cfg).
    pub fn of_key(key: &str, cells: u16) -> Self {
        let place = key.split('/').next().unwrap_or_default();
        let mut hash = flate2::Crc::new();
        hash.update(place.as_bytes());
        let number = hash.sum() % u32::from(cells.clamp(1, CELLS_LIMIT));
        Self(u16::try_from(number).unwrap_or_default())
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// The number below the cell's first id.
    pub fn before_ids(self) -> i64 {
        i64::from(self.0) << ID_BITS
    }

    /// The cell's last id.
    pub fn last_id(self) -> i64 {
        self.before_ids() + (1 << ID_BITS) - 1
    }

    /// The next cell; `None`: this one has the highest number.
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Accepts the number of a cell in decimal digits.
impl FromStr for Cell {
    type Err = InvalidCell;

    fn from_str(text: &str) -> Result<Self, InvalidCell> {
        text.parse().ok().and_then(Self::new).ok_or(InvalidCell)
    }
}

/// Why a text is no cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it takes the number of a cell, from 0 to {}", CELLS_LIMIT - 1)]
pub struct InvalidCell;

/// Which cells there are, as the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    /// How many cells there are: 0 and those after it.
    pub count: u16,
    /// Own keys lie in the first of them, this many.
    pub of_keys: u16,
}

impl Cells {
    /// One cell.
    pub const ONE: Self = Self { count: 1, of_keys: 1 };

    /// The cell after this one, if there is one.
    pub fn after(self, cell: Cell) -> Option<Cell> {
        cell.next().filter(|next| next.get() < self.count)
    }
}

impl Default for Cells {
    fn default() -> Self {
        Self::ONE
    }
}

/// What a request names lies in another cell. Nothing of the request was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} lies in cell {of}, and this is cell {here}")]
pub struct OtherCell {
    /// What lies there, as the client named it.
    pub what: String,
    pub of: Cell,
    pub here: Cell,
}

impl OtherCell {
    /// Checks that an id is not another cell's. An id that no cell draws is unknown everywhere, and passes.
    pub fn check_id(here: Cell, id: i64, kind: &str) -> Result<(), Self> {
        match Cell::of_id(id) {
            Some(of) if of != here => Err(Self {
                what: format!("{kind} {id}"),
                of,
                here,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that a key is not another cell's.
    pub fn check_key(here: Cell, cells: Cells, key: &str) -> Result<(), Self> {
        let of = match cells.of_keys {
            0 | 1 => Cell::FIRST,
            several => Cell::of_key(key, several),
        };
        if of == here {
            return Ok(());
        }
        Err(Self {
            what: format!("key:{key}"),
            of,
            here,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(number: u16) -> Cell {
        Cell::new(number).expect("a cell")
    }

    #[test]
    fn each_id_below_2_to_the_53rd_is_one_cells_and_none_beyond_is() {
        for (id, of) in [
            (1, Some(0)),
            ((1 << 40) - 1, Some(0)),
            (1 << 40, Some(1)),
            ((1 << 40) + 1, Some(1)),
            ((1 << 53) - 1, Some(8191)),
            (1 << 53, None),
            (i64::MAX, None),
            (-1, None),
        ] {
            assert_eq!(Cell::of_id(id).map(Cell::get), of, "{id}");
        }
        for number in [0, 1, 8191] {
            let one = cell(number);
            assert_eq!(Cell::of_id(one.before_ids() + 1), Some(one));
            assert_eq!(Cell::of_id(one.last_id()), Some(one));
            assert_ne!(Cell::of_id(one.last_id() + 1), Some(one));
        }
        assert_eq!(Cell::new(8192), None);
        assert_eq!(cell(8191).next(), None);
    }

    #[test]
    fn keys_with_the_same_part_before_the_first_slash_share_a_cell() {
        for place in ["", "page-7", "ключ", "a b"] {
            let one = Cell::of_key(place, 5);
            for key in ["/", "/a", "/a/b"] {
                assert_eq!(Cell::of_key(&format!("{place}{key}"), 5), one, "{place}{key}");
            }
        }
    }

    #[test]
    fn the_cell_of_a_key_is_its_crc32_modulo_the_cells() {
        /// The check value of CRC-32: that of "123456789".
        const CHECK: u32 = 0xcbf4_3926;
        for cells in [1, 2, 3, 7, CELLS_LIMIT] {
            let of = u32::from(Cell::of_key("123456789", cells).get());
            assert_eq!(of, CHECK % u32::from(cells), "{cells}");
        }
    }

    #[test]
    fn what_another_cell_has_is_named_with_its_cell() {
        assert_eq!(OtherCell::check_id(cell(0), 7, "item"), Ok(()));
        assert_eq!(OtherCell::check_id(cell(1), i64::MAX, "item"), Ok(()));
        let other = OtherCell::check_id(cell(1), 7, "item").expect_err("it is cell 0's");
        assert_eq!(other.to_string(), "item 7 lies in cell 0, and this is cell 1");
        assert_eq!(OtherCell::check_key(cell(0), Cells::ONE, "a"), Ok(()));
        let keys = OtherCell::check_key(cell(3), Cells { count: 4, of_keys: 1 }, "a").expect_err("cell 0's");
        assert_eq!((keys.of, keys.here), (cell(0), cell(3)));
    }

    #[test]
    fn the_last_cell_has_none_after_it() {
        let cells = Cells { count: 2, of_keys: 1 };
        assert_eq!(cells.after(cell(0)), Some(cell(1)));
        assert_eq!(cells.after(cell(1)), None);
        assert_eq!(Cells::ONE.after(cell(0)), None);
    }
}
