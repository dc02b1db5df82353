//! `tally archive verify`: whether files of archives are as they were written. The votes need not be there any more.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::file::{self, hexadecimal};
use crate::domain::{ArchiveId, ArchiveState, ArchivedVotes};
use crate::ledger::ArchiveLedger;
use crate::operator::show;

/// Says of each file whether it is right. Returns whether all are.
pub async fn verify(ledger: &ArchiveLedger, files: &[PathBuf], as_json: bool) -> anyhow::Result<bool> {
    let tally = ledger.identity().await?;
    let mut are_right = true;
    for path in files {
        let looked = look(ledger, path, &tally).await?;
        are_right &= looked.faults.is_empty();
        show(
            &json!({
                "file": path.display().to_string(),
                "archive": looked.archive,
                "ok": looked.faults.is_empty(),
                "votes": looked.votes.map(|votes| votes.total),
                "faults": looked.faults,
            }),
            as_json,
        );
    }
    Ok(are_right)
}

/// What is known of a file.
#[derive(Default)]
struct Looked {
    archive: Option<i64>,
    votes: Option<ArchivedVotes>,
    /// What is wrong, in words. Empty: nothing.
    faults: Vec<String>,
}

/// Looks at a file. Only Postgres can fail: what is wrong with the file is in the answer.
async fn look(ledger: &ArchiveLedger, path: &Path, tally: &str) -> anyhow::Result<Looked> {
    let mut looked = Looked::default();
    let (head, found) = match file::read(path) {
        Ok(read) => read,
        Err(error) => {
            looked.faults.push(format!("{error:#}"));
            return Ok(looked);
        }
    };
    looked.votes = Some(found.votes);
    let Some(head) = file::read_head(&head) else {
        looked
            .faults
            .push("its first line is not that of an archive".to_owned());
        return Ok(looked);
    };
    looked.archive = Some(head.archive);
    if head.tally != tally {
        let why = format!("it is of another Tally, {}, and this is {tally}", head.tally);
        looked.faults.push(why);
        return Ok(looked);
    }
    let archive = ledger.archive(ArchiveId(head.archive)).await?;
    let Some(checked) = archive.as_ref().and_then(|archive| archive.file.as_ref()) else {
        let why = format!("Tally knows no checked archive {}", head.archive);
        looked.faults.push(why);
        return Ok(looked);
    };
    if archive.as_ref().map(|archive| archive.state) == Some(ArchiveState::Cancelled) {
        looked
            .faults
            .push("the archive was cancelled: the ledger has its votes".to_owned());
    }
    for (what, is, was) in [
        ("SHA-256", hexadecimal(&found.hash), hexadecimal(&checked.hash)),
        ("bytes", found.bytes.to_string(), checked.bytes.to_string()),
        (
            "votes",
            found.votes.total.to_string(),
            checked.votes.total.to_string(),
        ),
        ("sum", found.votes.net.to_string(), checked.votes.net.to_string()),
        ("first vote", shown(found.votes.first), shown(checked.votes.first)),
        ("last vote", shown(found.votes.last), shown(checked.votes.last)),
    ] {
        if is != was {
            looked.faults.push(format!("{what}: {is}, and it was {was}"));
        }
    }
    Ok(looked)
}

fn shown(id: Option<i64>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}
