//! The URL of a store. Where it stands in a file, its user and password are read again, since a password may be
//! another one while the program runs.
//!
//! The file is read before a new connection, at most once a second. While the store refuses what stands there, the
//! login from before is tried too, in turn: a file may be written before the store knows the password, or after.

use std::fmt;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::domain::{HostList, without_wrapping};
use crate::{files, telemetry};

/// How long the file may take to be read. Whoever connects waits for it.
const READ_LIMIT: Duration = Duration::from_millis(200);
/// How long it is believed what the file had.
const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// How long a connection is used that may be of the login from before.
const UNSURE_LIMIT_AGE: Duration = Duration::from_secs(1);
/// How long making a connection may take, from when it takes its login. No caller waits longer for one.
const MAKING_LIMIT: Duration = Duration::from_secs(3);
/// When a file that took too long is read again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The URL of a store. Cheap to clone; clones of one that stands in a file share what was read last.
#[derive(Clone)]
pub struct StoreUrl {
    text: String,
    file: Option<Arc<UrlFile>>,
}

/// A file that holds the URL alone.
struct UrlFile {
    path: PathBuf,
    read: Mutex<Read>,
    /// Whoever reads the file holds it: a disk may hang.
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Read {
    /// The URL in the file when it was last read well.
    text: String,
    login: Login,
    /// The login from before, in turn with this one if a store refuses it. `None`: there was no other.
    other: Option<Login>,
    /// Counts the changes of `login`.
    number: u64,
    next_at: Instant,
    /// When the file last had another login. `None`: never.
    changed_at: Option<Instant>,
}

/// As whom Tally logs in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// Empty: the URL names none.
    pub user: String,
    /// `None`: there is none in the URL.
    pub password: Option<String>,
}

impl StoreUrl {
    /// This URL, which was read from this file.
    pub fn in_file(text: &str, path: &Path) -> Self {
        let read = Read {
            text: text.to_owned(),
            login: split(text).map(|(login, _)| login).unwrap_or_default(),
            other: None,
            number: 0,
            next_at: Instant::now() + BELIEVED_FOR,
            changed_at: None,
        };
        Self {
            text: text.to_owned(),
            file: Some(Arc::new(UrlFile {
                path: path.to_owned(),
                read: Mutex::new(read),
                turn: Arc::default(),
            })),
        }
    }

    /// The URL, as it was at the start.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the login may be another one than that of the start.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// The login to use now; `None`: that of the start.
    pub fn new_login(&self) -> Option<Login> {
        let read = self.file.as_ref()?.read();
        (read.number > 0).then(|| read.login.clone())
    }

    /// Counts the changes of the login. That of the start has 0.
    pub fn login_number(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.read().number)
    }

    /// Whether a connection of this age may be one of the login from before the file last had another one.
    ///
    /// A connection that was being made meanwhile may be of either. It is used for a second, so that not each one that
    /// is made is replaced at once.
    pub fn may_be_of_other_login(&self, age: Duration) -> bool {
        let changed_at = self.file.as_ref().and_then(|file| file.read().changed_at);
        changed_at.is_some_and(|at| {
            let since = at.elapsed();
            age >= since || (age > UNSURE_LIMIT_AGE && age + MAKING_LIMIT >= since)
        })
    }

    /// Reads the file again, unless that was done just now. Whoever makes a connection calls this first.
    ///
    /// A file that cannot be read, or holds no URL of this store, changes nothing, and is logged.
    // In a box: it stands deep in the futures of all programs.
    pub fn refresh(&self) -> BoxFuture<'_, ()> {
        match &self.file {
            Some(file) if file.read().next_at <= Instant::now() => Box::pin(file.read_in_time(&self.text)),
            _ => Box::pin(ready(())),
        }
    }

    /// A store refused the login with this number. Whether there is another one to try: in the file by now, or from
    /// before.
    pub fn has_other_login(&self, refused_number: u64) -> BoxFuture<'_, bool> {
        match &self.file {
            Some(file) => Box::pin(file.has_other(&self.text, refused_number)),
            None => Box::pin(ready(false)),
        }
    }
}

/// It would show the password.
impl fmt::Debug for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("StoreUrl(…)")
    }
}

impl From<&str> for StoreUrl {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            file: None,
        }
    }
}

impl From<&String> for StoreUrl {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for StoreUrl {
    fn from(text: String) -> Self {
        Self { text, file: None }
    }
}

impl From<&Self> for StoreUrl {
    fn from(url: &Self) -> Self {
        url.clone()
    }
}

impl UrlFile {
    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn has_other(self: &Arc<Self>, start: &str, refused_number: u64) -> bool {
        if self.read().number == refused_number {
            self.read_in_time(start).await;
        }
        let mut read = self.read();
        if read.number == refused_number
            && let Some(other) = read.other.take()
        {
            read.other = Some(std::mem::replace(&mut read.login, other));
            read.number += 1;
        }
        read.number != refused_number
    }

    /// Reads the file. Does not wait for a disk that hangs.
    async fn read_in_time(self: &Arc<Self>, start: &str) {
        // Another caller reads it, or hangs.
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else {
            return;
        };
        let (file, start) = (Arc::clone(self), start.to_owned());
        let reading = spawn_blocking(move || {
            let _turn = turn;
            file.read_now(&start)
        });
        let (why, next_in) = match timeout(READ_LIMIT, reading).await {
            Ok(Ok(Ok(()))) => (None, BELIEVED_FOR),
            Ok(Ok(Err(why))) => (Some(why), BELIEVED_FOR),
            Ok(Err(_)) => (Some("it cannot be read".to_owned()), BELIEVED_FOR),
            Err(_) => (
                Some(format!("it was not read within {READ_LIMIT:?}")),
                AGAIN_AFTER,
            ),
        };
        self.read().next_at = Instant::now() + next_in;
        let file = self.path.display();
        if let Some(error) = why.map(|why| format!("{file}: {why}"))
            && telemetry::is_news("the file of a store's URL is not used", &error)
        {
            tracing::warn!(
                error,
                "the login from before is used, and not what stands in the file of the URL"
            );
        }
    }

    /// Takes the login in the file. `start`: the URL at the start.
    fn read_now(&self, start: &str) -> Result<(), String> {
        let text = files::secret(&self.path)?;
        let text = without_wrapping(&text);
        let mut read = self.read();
        if read.text == text {
            return Ok(());
        }
        let is_postgres = text.starts_with("postgres");
        let (login, rest) = split(text).ok_or(
            "it is no URL; in user and password, write / as %2F, ? as %3F, # as %23, @ as %40, % as %25",
        )?;
        let (at_start, rest_at_start) = split(start).unwrap_or_default();
        // Programs find the store, and how, only at their start.
        if rest_at_start != rest {
            return Err(
                "more than user and password before the @ is another: restart the program".to_owned(),
            );
        }
        if login.user.is_empty() && (is_postgres || login.password.is_none()) {
            return Err("it has no user before an @".to_owned());
        }
        if login.password.is_none() && at_start.password.is_some() {
            return Err("it has no password".to_owned());
        }
        if is_postgres {
            check_user(&login.user)?;
        }
        text.clone_into(&mut read.text);
        if read.login != login {
            read.other = Some(std::mem::replace(&mut read.login, login));
            read.number += 1;
            read.changed_at = Some(Instant::now());
            tracing::info!(file = %self.path.display(), "another login stands in the file of a store's URL");
        }
        Ok(())
    }
}

/// Checks that a user of Postgres is one with which sqlx can log in.
///
/// # Errors
/// When it is not: why, in words.
pub fn check_user(user: &str) -> Result<(), String> {
    // sqlx 0.8.6 ends the program (its sasl.rs).
    match stringprep::saslprep(user) {
        Ok(_) => Ok(()),
        Err(_) => Err(
            "its user has characters that no login by password takes, such as line ends or emoji".to_owned(),
        ),
    }
}

/// The login in a URL, and the URL without it.
fn split(url: &str) -> Option<(Login, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let written = HostList::of(rest).login;
    let without = format!("{scheme}://{}", &rest[written.len()..]);
    let Some(written) = written.strip_suffix('@') else {
        return Some((Login::default(), without));
    };
    let (user, password) = written
        .split_once(':')
        .map_or((written, None), |(user, password)| (user, Some(password)));
    let login = Login {
        user: decoded(user)?,
        password: match password {
            Some(password) => Some(decoded(password)?),
            None => None,
        },
    };
    Some((login, without))
}

fn decoded(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_its_login_and_the_rest() {
        let login = |user: &str, password: Option<&str>| Login {
            user: user.to_owned(),
            password: password.map(str::to_owned),
        };
        for (url, user, password, rest) in [
            ("postgres://u:p@h/d", "u", Some("p"), "postgres://h/d"),
            (
                "postgres://u:p%40%3a@h1,h2:5/d?sslmode=require",
                "u",
                Some("p@:"),
                "postgres://h1,h2:5/d?sslmode=require",
            ),
            ("redis://:p@h", "", Some("p"), "redis://h"),
            ("redis+cluster://u@h", "u", None, "redis+cluster://h"),
        ] {
            assert!(
                split(url) == Some((login(user, password), rest.to_owned())),
                "{url}"
            );
        }
        let none = Some((Login::default(), "redis://h".to_owned()));
        assert!(split("redis://h") == none);
        for url in ["h", "postgres://u:%ff@h/d"] {
            assert!(split(url).is_none(), "{url}");
        }
    }

    fn in_file(url: &str) -> (tempfile::TempDir, PathBuf, StoreUrl) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("url");
        let url = StoreUrl::in_file(url, &path);
        (folder, path, url)
    }

    fn password(url: &StoreUrl) -> Option<String> {
        url.new_login().and_then(|login| login.password)
    }

    #[tokio::test]
    async fn only_another_user_or_password_in_the_file_is_taken() {
        let (_folder, path, url) = in_file("postgres://u:p@h/d");
        let write = |text: &str| std::fs::write(&path, text).expect("written");
        assert!(!url.has_other_login(0).await, "there is no file");
        for text in [
            "postgres://u:p@h/d\n",
            "postgres://u:q@other/d",
            "postgres://h/d",
            "postgres://u@h/d",
            "postgres://:q@h/d",
            "postgres://u%0A:q@h/d",
            "postgres://%F0%9F%98%80:q@h/d",
            "",
            "u:q",
        ] {
            write(text);
            assert!(!url.has_other_login(0).await, "{text}");
        }
        assert!(url.new_login().is_none());
        write("\"postgres://u2:q@h/d\"\r\n");
        assert!(url.has_other_login(0).await);
        let login = url.new_login().expect("a login");
        assert_eq!(
            (login.user.as_str(), login.password.as_deref()),
            ("u2", Some("q"))
        );
    }

    #[tokio::test]
    async fn a_login_that_is_refused_takes_turns_with_the_one_from_before() {
        let (_folder, path, url) = in_file("redis://u:p@h");
        std::fs::write(&path, "redis://u:q@h").expect("written");
        assert!(url.has_other_login(0).await);
        assert_eq!(password(&url).as_deref(), Some("q"));
        // Another caller was refused with the first one, and tries this one.
        assert!(url.has_other_login(0).await);
        assert_eq!(password(&url).as_deref(), Some("q"));
        // The store does not know it yet.
        assert!(url.has_other_login(1).await);
        assert_eq!(password(&url).as_deref(), Some("p"));
        assert!(url.has_other_login(2).await);
        assert_eq!(password(&url).as_deref(), Some("q"));
        std::fs::remove_file(&path).expect("removed");
        assert!(url.has_other_login(3).await);
        assert_eq!(password(&url).as_deref(), Some("p"));
    }

    #[tokio::test]
    async fn the_file_is_read_before_connections_but_not_when_that_was_just_done() {
        let (_folder, path, url) = in_file("redis://h");
        std::fs::write(&path, "redis://:q@h").expect("written");
        let read_next = |at: Instant| url.file.as_ref().expect("a file").read().next_at = at;
        read_next(Instant::now() + AGAIN_AFTER);
        url.refresh().await;
        assert!(url.new_login().is_none(), "it was just read");
        read_next(Instant::now());
        url.refresh().await;
        assert_eq!(
            password(&url).as_deref(),
            Some("q"),
            "also where the start had no login"
        );
    }

    #[tokio::test]
    async fn a_connection_that_was_made_while_the_login_changed_is_used_for_a_second() {
        let (_folder, path, url) = in_file("redis://u:p@h");
        let is_left = |age: f64| url.may_be_of_other_login(Duration::from_secs_f64(age));
        assert!(!is_left(3600.0), "the login never changed");
        std::fs::write(&path, "redis://u:q@h").expect("written");
        assert!(url.has_other_login(0).await);
        assert!(is_left(3600.0) && !is_left(0.0));
        // The ages of connections that were made before, just after, and long after the change.
        for (changed_ago, ages, expected) in [
            (0.5, [0.6, 0.4, 0.0], [true, false, false]),
            (2.0, [2.1, 1.1, 0.9], [true, true, false]),
            (60.0, [60.1, 58.0, 55.0], [true, true, false]),
        ] {
            let at = Instant::now() - Duration::from_secs_f64(changed_ago);
            url.file.as_ref().expect("a file").read().changed_at = Some(at);
            assert_eq!(ages.map(is_left), expected, "{changed_ago}");
        }
    }

    #[test]
    fn a_url_shows_nothing() {
        assert_eq!(
            format!("{:?}", StoreUrl::from("postgres://u:p@h/d")),
            "StoreUrl(…)"
        );
    }
}
