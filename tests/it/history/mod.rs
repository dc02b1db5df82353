//! Every count that is answered is possible: it lies between the votes that were acknowledged
//! with a count before its request began and those that were sent before it ended
//! (`testkit::history`).

mod bounds;
mod restarts;
