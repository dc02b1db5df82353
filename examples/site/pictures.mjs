// The pictures that readers choose from, for the server, which makes their items, and for the page in React.
export const PICTURES = [
  { key: "picture-lighthouse", name: "The lighthouse in October", file: "/pictures/lighthouse.svg" },
  { key: "picture-ferry", name: "The last ferry", file: "/pictures/ferry.svg" },
  { key: "picture-trees", name: "Market square, as planned", file: "/pictures/trees.svg" },
  { key: "picture-gull", name: "A gull, uninvited", file: "/pictures/gull.svg" },
];
