//! Reads which paths the files of a crate name, outside of comments and tests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A path of Rust: `["crate", "ledger", "LedgerError"]`.
type Name = Vec<String>;

/// A source file of a crate.
pub struct File {
    /// From the source folder of the crate.
    pub path: String,
    pub text: String,
    /// The modules that it declares, in order.
    pub modules: Vec<String>,
    module: Name,
    /// The names that its `use` lines bring in, each with its path.
    uses: HashMap<String, Name>,
    /// Each path that it names, from `crate` or another crate on.
    paths: Vec<Name>,
}

/// The source files of a crate, without its programs.
pub struct Source {
    pub files: Vec<File>,
}

impl Source {
    pub fn read(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).expect("a folder") {
                let path = entry.expect("an entry").path();
                let name = path.strip_prefix(folder).expect("within").display().to_string();
                if path.is_dir() && name != "bin" {
                    folders.push(path);
                } else if name.ends_with(".rs") && name != "main.rs" {
                    files.insert(name, fs::read_to_string(path).expect("text"));
                }
            }
        }
        Self::new(files)
    }

    /// Makes a crate from each file's path and text.
    pub fn new(files: BTreeMap<String, String>) -> Self {
        let modules: BTreeSet<Name> = files.keys().map(|path| module(path)).collect();
        let mut only_tests = BTreeSet::new();
        let mut read = Vec::new();
        for (path, text) in files {
            let tokens: TokenStream = text.parse().expect("Rust");
            let module = module(&path);
            let mut reader = Reader {
                known: &modules,
                modules: Vec::new(),
                only_tests: &mut only_tests,
                uses: HashMap::new(),
                paths: Vec::new(),
            };
            reader.items(tokens, &module);
            let Reader {
                modules, uses, paths, ..
            } = reader;
            let paths = paths.into_iter().map(|path| expanded(path, &uses)).collect();
            read.push(File {
                path,
                text,
                modules,
                module,
                uses,
                paths,
            });
        }
        read.retain(|file| !only_tests.iter().any(|module| file.module.starts_with(module)));
        Self { files: read }
    }

    pub fn file(&self, path: &str) -> &File {
        self.files
            .iter()
            .find(|file| file.path == path)
            .expect("this file")
    }

    /// The files that each file imports from.
    /// These define what the file names, even if another module exports it. A file and the modules
    /// in it count as one.
    pub fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let of = |file: &File| {
            let targets = file.paths.iter().filter_map(|path| self.definer(path, 0));
            let others = targets.filter(|target| {
                !target.module.starts_with(&file.module) && !file.module.starts_with(&target.module)
            });
            others.map(|target| target.path.clone()).collect()
        };
        self.files
            .iter()
            .map(|file| (file.path.clone(), of(file)))
            .collect()
    }

    /// The file that defines what a path names.
    fn definer(&self, path: &[String], depth: usize) -> Option<&File> {
        assert!(depth < 20, "{path:?} leads nowhere");
        let [root, names @ ..] = path else { return None };
        if root != "crate" {
            return None;
        }
        let within = |length: usize| self.files.iter().find(|file| file.module == names[..length]);
        let (file, length) = (0..=names.len())
            .rev()
            .find_map(|length| Some((within(length)?, length)))?;
        let handed_on = names.get(length).and_then(|name| file.uses.get(name));
        match handed_on {
            Some(from) if from[0] == "crate" => {
                self.definer(&[from, &names[length + 1..]].concat(), depth + 1)
            }
            // Another crate defines it.
            Some(_) => None,
            None => Some(file),
        }
    }
}

impl File {
    /// Whether the file names this path, such as `["std", "fs", "read"]`.
    pub fn names(&self, path: &[&str]) -> bool {
        self.paths.iter().any(|one| one == path)
    }

    pub fn names_crate(&self, source: &Source, krate: &str) -> bool {
        let is_module = |one: &File| one.module.split_last() == Some((&krate.to_owned(), &self.module[..]));
        !source.files.iter().any(is_module) && self.paths.iter().any(|path| path[0] == krate)
    }
}

/// The module of a file.
fn module(path: &str) -> Name {
    let path = path.trim_end_matches(".rs").trim_end_matches("mod");
    let names = path.split('/').filter(|name| !name.is_empty() && *name != "lib");
    names.map(str::to_owned).collect()
}

/// A path whose first name is replaced by that name's own path.
fn expanded(path: Name, uses: &HashMap<String, Name>) -> Name {
    match uses.get(&path[0]) {
        Some(from) => [from, &path[1..]].concat(),
        None => path,
    }
}

struct Reader<'a> {
    known: &'a BTreeSet<Name>,
    modules: Vec<String>,
    only_tests: &'a mut BTreeSet<Name>,
    uses: HashMap<String, Name>,
    paths: Vec<Name>,
}

impl Reader<'_> {
    /// Reads the tokens of this module.
    fn items(&mut self, tokens: TokenStream, here: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(mark) if mark.as_char() == '#' && is_for_tests(tokens.get(at + 1)) => {
                    at = self.skip(&tokens, at + 2, here);
                    continue;
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = (at..tokens.len()).find(|end| is_mark(tokens.get(*end), ';'));
                    let end = end.unwrap_or(tokens.len());
                    self.tree(&tokens[at + 1..end], &[], here);
                    at = end;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
                        break;
                    };
                    if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                        let inner = [here, &[name.to_string()]].concat();
                        self.items(body.stream(), &inner);
                    } else {
                        self.modules.push(name.to_string());
                    }
                    at += 2;
                }
                TokenTree::Ident(_) => {
                    let (path, end) = path(&tokens, at);
                    // A single word is no path.
                    if path.len() > 1 {
                        self.paths.push(self.whole(path, here));
                    }
                    at = end;
                    continue;
                }
                TokenTree::Group(group) => self.items(group.stream(), here),
                _ => {}
            }
            at += 1;
        }
    }

    /// Reads a `use` tree with this prefix.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String], here: &[String]) {
        for branch in tokens.split(|token| is_mark(Some(token), ',')) {
            let start = branch
                .iter()
                .position(|token| matches!(token, TokenTree::Ident(_)));
            let (names, end) = start.map_or((Vec::new(), 0), |start| path(branch, start));
            let mut full = [prefix, &names].concat();
            if let Some(TokenTree::Group(group)) = branch.get(end) {
                self.tree(&group.stream().into_iter().collect::<Vec<_>>(), &full, here);
                continue;
            }
            if full.len() > 1 && full.last().is_some_and(|name| name == "self") {
                full.pop();
            }
            let Some(mut name) = full.last().cloned() else {
                continue;
            };
            if let Some(TokenTree::Ident(renamed)) = branch.get(end + 1)
                && matches!(&branch[end], TokenTree::Ident(word) if word == "as")
            {
                name = renamed.to_string();
            }
            let whole = self.whole(full, here);
            self.paths.push(whole.clone());
            if whole != [name.as_str()] {
                self.uses.insert(name, whole);
            }
        }
    }

    /// The path from `crate` on, for a path in this module.
    fn whole(&self, path: Name, here: &[String]) -> Name {
        let root = ["crate".to_owned()];
        let ups = path.iter().take_while(|name| *name == "super").count();
        match path[0].as_str() {
            "self" => [&root, here, &path[1..]].concat(),
            "super" => [&root, &here[..here.len() - ups], &path[ups..]].concat(),
            first if self.known.contains(&[here, &[first.to_owned()]].concat()) => {
                [&root, here, &path].concat()
            }
            _ => path,
        }
    }

    /// Skips the item at `at`, which is only for tests.
    /// Returns where the next item begins.
    fn skip(&mut self, tokens: &[TokenTree], mut at: usize, here: &[String]) -> usize {
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(word) if word == "mod" => {
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
                        self.only_tests.insert([here, &[name.to_string()]].concat());
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => break,
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
                _ => {}
            }
            at += 1;
        }
        at + 1
    }
}

/// The path that begins at `at`, and where its tokens end.
/// A path may end behind a `::` that leads into a group.
fn path(tokens: &[TokenTree], mut at: usize) -> (Name, usize) {
    let mut names = Vec::new();
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        names.push(name.to_string());
        at += 1;
        if !(is_mark(tokens.get(at), ':') && is_mark(tokens.get(at + 1), ':')) {
            break;
        }
        at += 2;
    }
    (names, at)
}

fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == mark)
}

/// Whether it is for tests: `[test]`, `[cfg(test)]`, `[cfg(any(test, …))]`.
fn is_for_tests(attribute: Option<&TokenTree>) -> bool {
    fn has_test(group: &Group) -> bool {
        group.stream().into_iter().any(|token| match token {
            TokenTree::Ident(word) => word == "test",
            TokenTree::Group(group) => has_test(&group),
            _ => false,
        })
    }
    let Some(TokenTree::Group(group)) = attribute else {
        return false;
    };
    let first = group.stream().into_iter().next();
    let is_condition = matches!(&first, Some(TokenTree::Ident(word)) if word == "cfg" || word == "test");
    is_condition && has_test(group)
}
