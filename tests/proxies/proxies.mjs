// Each proxy, with the fewest lines that its own manual gives ("stock") and with those of docs/operating/proxy.md
// ("ours"), at the root and below a path, and with TLS where it speaks it.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const MANUAL = new URL("../../docs/operating/proxy.md", import.meta.url);
export const HOST = "news.example.org"; // whose certificate the proxies have

// The first blocks of nginx in the document: a host of its own, and a location below a path.
function nginxBlocks() {
  const blocks = [...readFileSync(MANUAL, "utf8").matchAll(/```nginx\n(.*?)```/gs)].map(([, block]) => block);
  const [host, path] = [blocks.find((one) => /^upstream tally/m.test(one)), blocks.find((one) => /location \/tally\//.test(one))];
  if (!host || !path) throw new Error("docs/operating/proxy.md has no nginx block with `upstream tally`, or none with `location /tally/`");
  return { host, path };
}

// Replaces what stands for the reader's own in the document. Each must be there.
function replaced(text, changes) {
  for (const [pattern, by] of changes) {
    if (!pattern.test(text)) throw new Error(`docs/operating/proxy.md has no ${pattern} any more`);
    text = text.replace(pattern, by);
  }
  return text;
}

function nginxOfManual({ port, upstream, folder, prefix }) {
  const { host, path } = nginxBlocks();
  let block = replaced(host, [
    [/server [\d.]+:8080 max_fails=0;\n\s+server [\d.]+:8080 max_fails=0;/, `server 127.0.0.1:${upstream};`],
    [/listen 443 ssl;/, `listen 127.0.0.1:${port} ssl;`],
    [/server_name .*/, `server_name ${HOST}; ssl_certificate ${folder}/cert.pem; ssl_certificate_key ${folder}/key.pem;`],
  ]);
  if (prefix) {
    const lines = /proxy_http_version.*?(?=\n\s+})/s.exec(block);
    const location = replaced(path, [[/# and the four lines.*/, lines[0]]]);
    block = replaced(block, [[/location \/ \{.*?\n\s+\}/s, location]]);
  }
  return block;
}

const nginx = (server, folder) => `
  daemon off; pid ${folder}/nginx.pid; error_log ${folder}/error.log; events {}
  http {
    access_log off;
    ${["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((one) => `${one}_temp_path ${folder}/${one};`).join(" ")}
    ${server}
  }`;

const APACHE_MODULES = "mpm_event authz_core proxy proxy_http ssl socache_shmcb headers env setenvif rewrite";
const apache = (lines, folder) => `
  ${APACHE_MODULES.split(" ").map((one) => `LoadModule ${one}_module /usr/lib/apache2/modules/mod_${one}.so`).join("\n")}
  ServerName ${HOST}
  PidFile ${folder}/apache.pid
  ErrorLog ${folder}/error.log
  Mutex file:${folder}
  ServerRoot ${folder}
  DefaultRuntimeDir ${folder}
  ${lines}`;

const haproxy = (bind, lines, upstream) => `
defaults
    mode http
    timeout client 30s
    timeout server 60s
    timeout connect 5s
frontend news
    bind 127.0.0.1:${bind}
    ${lines}
    default_backend tally
backend tally
    server one 127.0.0.1:${upstream}
`;

// Varnish has no TLS: something else must end it. `prefix` needs lines of its own, as its default has no paths.
const varnish = (upstream, prefix) => `vcl 4.1;
  backend default { .host = "127.0.0.1"; .port = "${upstream}"; }
  ${prefix ? `sub vcl_recv { set req.url = regsub(req.url, "^${prefix}/", "/"); }` : ""}`;

const caddy = (address, lines) => `{
    admin off
    auto_https off
  }
  ${address} {
    ${lines}
  }`;

const files = ({ folder }) => `${folder}/cert.pem ${folder}/key.pem`;

/**
 * `config` returns the text of the proxy's file, `run` the command for it. `passesHost`: the server sees the host
 * and port that the browser asks for. `addsAddress`: the server learns the client's address.
 */
export const PROXIES = [
  {
    name: "nginx, stock",
    program: "nginx",
    config: ({ port, upstream, folder }) => nginx(`server { listen 127.0.0.1:${port}; location / { proxy_pass http://127.0.0.1:${upstream}; } }`, folder),
  },
  {
    name: "nginx, stock, below a path",
    program: "nginx",
    prefix: "/tally",
    config: ({ port, upstream, folder }) => nginx(`server { listen 127.0.0.1:${port}; location /tally/ { proxy_pass http://127.0.0.1:${upstream}/; } }`, folder),
  },
  {
    name: "nginx, ours, TLS",
    program: "nginx",
    tls: true,
    passesHost: true,
    addsAddress: true,
    config: (at) => nginx(nginxOfManual({ ...at, prefix: "" }), at.folder),
  },
  {
    name: "nginx, ours, TLS, below a path",
    program: "nginx",
    tls: true,
    prefix: "/tally",
    passesHost: true,
    addsAddress: true,
    config: (at) => nginx(nginxOfManual({ ...at, prefix: "/tally" }), at.folder),
  },
  {
    name: "Apache, stock",
    program: "apache2",
    addsAddress: true, // mod_proxy_http adds X-Forwarded-For by itself
    config: ({ port, upstream, folder }) => apache(`Listen 127.0.0.1:${port}
      ProxyPass "/" "http://127.0.0.1:${upstream}/"
      ProxyPassReverse "/" "http://127.0.0.1:${upstream}/"`, folder),
  },
  {
    name: "Apache, stock, HTTP/1.0 to the server",
    program: "apache2",
    addsAddress: true,
    config: ({ port, upstream, folder }) => apache(`Listen 127.0.0.1:${port}
      SetEnv force-proxy-request-1.0 1
      SetEnv proxy-nokeepalive 1
      ProxyPass "/" "http://127.0.0.1:${upstream}/"`, folder),
  },
  {
    name: "Apache, ours, TLS, below a path",
    program: "apache2",
    tls: true,
    prefix: "/tally",
    passesHost: true,
    addsAddress: true,
    config: ({ port, upstream, folder }) => apache(`Listen 127.0.0.1:${port}
      SSLEngine on
      SSLCertificateFile ${folder}/cert.pem
      SSLCertificateKeyFile ${folder}/key.pem
      AllowEncodedSlashes NoDecode
      ProxyPreserveHost On
      ProxyPass "/tally/" "http://127.0.0.1:${upstream}/" nocanon
      ProxyPassReverse "/tally/" "http://127.0.0.1:${upstream}/"`, folder),
  },
  {
    name: "HAProxy, stock",
    program: "haproxy",
    passesHost: true,
    config: ({ port, upstream }) => haproxy(port, "", upstream),
  },
  {
    name: "HAProxy, ours, TLS",
    program: "haproxy",
    tls: true,
    passesHost: true,
    addsAddress: true,
    config: ({ port, upstream, folder }) => haproxy(`${port} ssl crt ${folder}/both.pem`, "option forwardfor", upstream),
  },
  {
    name: "HAProxy, ours, below a path",
    program: "haproxy",
    prefix: "/tally",
    passesHost: true,
    addsAddress: true,
    config: ({ port, upstream }) => haproxy(port, "option forwardfor\n    http-request replace-path /tally(/.*) \\1", upstream),
  },
  {
    name: "Varnish, stock",
    program: "varnishd",
    passesHost: true,
    addsAddress: true,
    config: ({ upstream }) => varnish(upstream, ""),
  },
  {
    name: "Varnish, below a path",
    program: "varnishd",
    prefix: "/tally",
    passesHost: true,
    addsAddress: true,
    config: ({ upstream }) => varnish(upstream, "/tally"),
  },
  {
    name: "Caddy, stock",
    program: "caddy",
    passesHost: true,
    addsAddress: true,
    config: ({ port, upstream }) => caddy(`http://${HOST}:${port}`, `reverse_proxy 127.0.0.1:${upstream}`),
  },
  {
    name: "Caddy, stock, TLS, below a path",
    program: "caddy",
    tls: true,
    prefix: "/tally",
    passesHost: true,
    addsAddress: true,
    config: (at) => caddy(`https://${HOST}:${at.port}`, `tls ${files(at)}\n    handle_path /tally/* {\n      reverse_proxy 127.0.0.1:${at.upstream}\n    }`),
  },
];

// The command of each program, with its file.
export const COMMANDS = {
  nginx: ({ file, folder }) => ["-p", folder, "-e", `${folder}/error.log`, "-c", file],
  apache2: ({ file, folder }) => ["-DFOREGROUND", "-d", folder, "-f", file],
  haproxy: ({ file }) => ["-f", file],
  varnishd: ({ file, folder, port }) => ["-F", "-a", `127.0.0.1:${port}`, "-f", file, "-n", `${folder}/varnish`, "-s", "malloc,16m", "-T", "none", "-j", "none"],
  caddy: ({ file }) => ["run", "--config", file, "--adapter", "caddyfile"],
};

// Not every user has Debian's folder for servers in PATH.
export const PATH = `${process.env.PATH}:/usr/sbin`;

// The programs of PROXIES that are installed.
export function installed() {
  const programs = [...new Set(PROXIES.map((one) => one.program))];
  return programs.filter((program) => PATH.split(":").some((at) => existsSync(join(at, program))));
}
