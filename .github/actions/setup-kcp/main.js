// Installs kcpctl and starts a kcp.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { fail, flag, input, run, set } = require('./runner.js');

// install returns the path of kcpctl, and lets later steps find it.
function install(temp) {
  const given = input('kcpctl');
  if (given) {
    return path.resolve(given);
  }
  const dir = path.join(temp, 'kcpctl-bin');
  const version = input('version') || 'latest';
  const script = path.join(__dirname, '..', '..', '..', 'install.sh');
  run('sh', script, '--dir', dir, ...(version === 'latest' ? [] : ['--version', version]));
  fs.appendFileSync(process.env.GITHUB_PATH, `${dir}\n`);
  return path.join(dir, 'kcpctl');
}

// setup returns the path of the setup file. Its name is unique, so that several jobs can share a runner.
function setup(temp) {
  const given = input('config');
  const version = input('kcp-version');
  if (given && version) {
    throw new Error('input kcp-version: set spec.version in the setup file of the input config instead');
  }
  if (given) {
    return path.resolve(given);
  }
  const file = path.join(temp, 'kcp.yaml');
  const name = `ci-${process.env.GITHUB_RUN_ID || 'run'}-${process.pid}`;
  const spec = version ? `spec:\n  version: ${JSON.stringify(version)}\n` : '';
  fs.writeFileSync(file, `apiVersion: kcpctl.dev/v1alpha1\nkind: Setup\nmetadata:\n  name: ${name}\n${spec}`);
  return file;
}

function main() {
  const temp = fs.mkdtempSync(path.join(process.env.RUNNER_TEMP, 'setup-kcp-'));
  const [only, keep] = [flag('install-only'), flag('keep')];
  const kcpctl = install(temp);
  if (only) {
    return;
  }
  const file = setup(temp);
  // State of its own: on a runner that others use, a setup of the same name is neither changed nor removed.
  process.env.XDG_STATE_HOME = path.join(temp, 'state');
  if (!keep) { // before anything is started: the last part removes what is there, also after a failure
    set('GITHUB_STATE', 'kcpctl', kcpctl);
    set('GITHUB_STATE', 'file', file);
    set('GITHUB_STATE', 'state', process.env.XDG_STATE_HOME);
  }
  run(kcpctl, 'up', '--local', '-f', file, '--timeout', input('timeout') || '5m');
  const kubeconfig = path.join(temp, 'kubeconfig');
  run(kcpctl, 'kubeconfig', '--local', '-f', file, '-o', kubeconfig);
  const server = fs.readFileSync(kubeconfig, 'utf8').match(/^\s*server: (\S+)$/m)[1];
  set('GITHUB_OUTPUT', 'kubeconfig', kubeconfig);
  set('GITHUB_OUTPUT', 'url', new URL(server).origin);
  set('GITHUB_ENV', 'KUBECONFIG', kubeconfig);
  set('GITHUB_ENV', 'XDG_STATE_HOME', process.env.XDG_STATE_HOME); // where kcpctl --local of later steps finds it
}

try {
  main();
} catch (error) {
  fail(error);
}
