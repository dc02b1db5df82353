// Pods without Kubernetes: the command and the environment of a manifest, run as its securityContext says, and probed
// as the kubelet would.
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { imageEnvironment } from "./manifests.mjs";
import { freePort } from "../ports.mjs";
import { IS_ROOT, get, sleep } from "./stores.mjs";

// Of its own mounts: all of the machine is read-only, and the volume is where the manifest says. Then root becomes the
// pod's user for good. $1 the volume, $2 its mount path, $3 the user, $4 the group, $5 the files' group; then the command.
const SANDBOX = `set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p "$2"
mount --bind "$1" "$2"
cut -d ' ' -f 5 /proc/self/mountinfo | while read -r path; do
    mount -o remount,bind,ro "$path" 2>/dev/null || case $path in /proc* | /sys* | /mnt*) ;; *) echo "$path is not read-only" >&2; exit 1 ;; esac
done
user=$3 group=$4 files=$5
shift 5
exec setpriv --pdeathsig KILL --reuid="$user" --regid="$group" --groups="$files" --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"`;

export class Pod {
  /** `secret`: the files of its volume; `env`: what is another host or port here. */
  static async start(laboratory, bin, name, template, secret, env = {}) {
    const pod = new Pod();
    const [container] = template.spec.containers;
    Object.assign(pod, { laboratory, name, container, grace: template.spec.terminationGracePeriodSeconds ?? 30, transitions: [], answersMs: [], killedFor: undefined });
    const { runAsUser, runAsGroup, fsGroup } = template.spec.securityContext;
    const [mount] = container.volumeMounts;
    const volume = join(laboratory.folder, `${name}.secrets`);
    mkdirSync(volume);
    for (const [key, value] of Object.entries(secret)) {
      writeFileSync(join(volume, key), value);
      chmodSync(join(volume, key), template.spec.volumes.find((one) => one.name === mount.name).secret.defaultMode);
    }
    if (IS_ROOT) laboratory.run(["chown", "-R", `0:${fsGroup}`, volume]);
    pod.port = container.ports ? await freePort() : undefined;
    const own = Object.fromEntries(container.env.map((one) => [one.name, one.value]));
    for (const listen of ["TALLY_LISTEN", "TALLY_WORKER_LISTEN"]) if (listen in own) own[listen] = `127.0.0.1:${pod.port}`;
    // Without root, the files are where they are.
    if (!IS_ROOT) for (const [key, value] of Object.entries(own)) if (key.endsWith("_FILE")) own[key] = value.replace(mount.mountPath, volume);
    pod.env = { ...imageEnvironment(), ...own, PATH: `${bin}:/usr/sbin:/usr/bin:/sbin:/bin`, HOSTNAME: name, KUBERNETES_SERVICE_HOST: "10.96.0.1", KUBERNETES_SERVICE_PORT: "443", ...env };
    pod.wrap = (command) => (IS_ROOT ? ["unshare", "--mount", "sh", "-c", SANDBOX, "sandbox", volume, mount.mountPath, runAsUser, runAsGroup, fsGroup, ...command].map(String) : command);
    pod.started = Date.now();
    pod.program = laboratory.start(name, pod.wrap(container.command), { env: pod.env });
    pod.ready = false;
    pod.isOver = false;
    pod.program.exit.then(() => (pod.isOver = true));
    if (container.readinessProbe) pod.kubelet = pod.#kubelet();
    return pod;
  }

  /** Runs a command beside the program, as `kubectl exec` would. */
  exec(command) {
    return this.laboratory.run(this.wrap(command), { env: this.env, mayFail: true });
  }

  url(path) {
    return `http://127.0.0.1:${this.port}${path}`;
  }

  async #probe({ httpGet, timeoutSeconds }) {
    const answer = await get(this.url(httpGet.path), timeoutSeconds * 1_000);
    // Of a pod that has ended meanwhile, nothing is said.
    if (!this.isOver && answer.status !== 0) this.answersMs.push(answer.ms);
    return { isGood: answer.status >= 200 && answer.status < 400, ...answer };
  }

  async #kubelet() {
    const { startupProbe, livenessProbe, readinessProbe } = this.container;
    for (let failures = 0; !this.isOver && !(await this.#probe(startupProbe)).isGood; ) {
      failures += 1;
      if (failures >= startupProbe.failureThreshold) this.killedFor ??= "startup";
      await sleep(startupProbe.periodSeconds * 1_000);
    }
    this.startedAfterMs = Date.now() - this.started;
    await Promise.all([
      this.#each(livenessProbe, (failures) => failures >= livenessProbe.failureThreshold && !this.isStopping && (this.killedFor ??= "liveness")),
      this.#each(readinessProbe, (failures) => {
        const ready = failures === 0 ? true : failures >= readinessProbe.failureThreshold ? false : this.ready;
        if (ready !== this.ready) this.transitions.push({ ready, at: Date.now() });
        this.ready = ready;
      }),
    ]);
  }

  async #each(probe, result) {
    for (let failures = 0; !this.isOver; ) {
      failures = (await this.#probe(probe)).isGood ? 0 : failures + 1;
      if (!this.isOver) result(failures);
      await Promise.race([sleep(probe.periodSeconds * 1_000, { holds: false }), this.program.exit]);
    }
  }

  /** As Kubernetes ends a pod: SIGTERM, and SIGKILL after the grace period. */
  async stop() {
    this.isStopping = true;
    const begin = Date.now();
    this.program.child.kill("SIGTERM");
    const killed = await Promise.race([this.program.exit.then(() => false), sleep(this.grace * 1_000, { holds: false }).then(() => true)]);
    if (killed) this.program.child.kill("SIGKILL");
    const { code, signal } = await this.program.exit;
    await this.kubelet;
    return { code, signal, killed, seconds: (Date.now() - begin) / 1_000 };
  }
}
