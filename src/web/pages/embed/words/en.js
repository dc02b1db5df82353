// The elements' words in English, which is part of embed.js. Every other language is a file beside this one, with the
// same keys. Where a number decides the form, a word has one text for each of the language's plural categories
// (Intl.PluralRules) that it needs, at least `other`.
const ENGLISH = {
  // Counts.
  votes: { one: "{n} vote", other: "{n} votes" },
  voters: { one: "{n} voter.", other: "{n} voters." },
  countFollows: "The count follows.",
  ofVotes: "Percentages are of votes.",
  ofVoters: "Percentages are of voters.",
  // Buttons. `name` is the item's.
  voteUp: "Vote up",
  voteDown: "Vote down",
  voteUpFor: "Vote up: {name}",
  voteDownFor: "Vote down: {name}",
  reactions: "Reactions",
  // `count` is `votes` with its number.
  reaction: "{emoji}: {count}",
  vote: "Vote",
  cancel: "Cancel",
  // What became of a vote.
  counted: "Your vote counts.",
  countedAs: "Your vote counts. It is number {n}.",
  takenBack: "Your vote is taken back.",
  ballotSpent: "Your vote counts. The ballot is spent.",
  // Times and rules. `when` is a date with its time zone, `time` a duration such as 0:42.
  opens: "Opens {when}.",
  closes: "Closes {when}.",
  closed: "Closed {when}.",
  final: "Final since {when}.",
  opensIn: "Opens in {time}.",
  closesIn: "Closes in {time}.",
  chooseAny: "Choose as many as you like.",
  chooseUpTo: { one: "Choose one.", other: "Choose up to {n}." },
  resultsAtClose: "Results show when it closes.",
  places: { one: "{taken} of {n} place taken.", other: "{taken} of {n} places taken." },
  // Ballots.
  ballot: "Your ballot",
  ballotEmpty: "Enter your ballot first.",
  ballotSure: "Vote for {name}? A ballot votes once.",
  ballotSureDown: "Vote against {name}? A ballot votes once.",
  // Enter was pressed in the ballot's field before a choice.
  chooseFirst: "Choose an answer first.",
  // Why there is no vote.
  signIn: "Sign in to vote.",
  credentialMissing: "Votes are only taken from voters who are known here.",
  throttled: "That was too often. Wait a little.",
  full: "All places are taken.",
  isClosed: "This is closed.",
  notOpenYet: "This is not open yet.",
  tooManyChoices: "That is one choice too many: take one back first.",
  noDownVotes: "This takes no down-votes.",
  ballotMissing: "This needs a ballot.",
  ballotNotValid: "This ballot is not valid, or it was used already.",
  unavailable: "Votes cannot be stored right now. Try again in a moment.",
  noAnswer: "The server does not answer.",
  originRefused: "This page may not use these votes: its origin is not allowed.",
  outcomeUnknown: "Your vote may or may not be stored. Vote again to be sure: it counts once.",
  refused: "The vote was not taken.",
  // The chart. `lines` are `fromTo`, one for each line.
  overDay: "Over the last day. {lines}.",
  overHour: "Over the last hour. {lines}.",
  fromTo: "{name}: from {from} to {to}",
  dayAgo: "a day ago",
  hourAgo: "an hour ago",
  high: "high {n}",
};
