// Keeps the list in the order of its counts while votes come in.
const list = document.querySelector("ol.top");
list.addEventListener("tally-counts", ({ target, detail }) => {
  if (detail.vote_count === null) return;
  target.closest("li").dataset.count = detail.vote_count;
  const rows = [...list.children];
  const ordered = [...rows].sort((a, b) => b.dataset.count - a.dataset.count);
  const isSame = ordered.every((row, at) => row === rows[at]);
  // Nothing moves from under the keyboard.
  if (!isSame && !list.contains(document.activeElement)) list.append(...ordered);
});
