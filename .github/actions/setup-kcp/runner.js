// The parts of the protocol between an action and its runner that this action needs
// (https://docs.github.com/actions: workflow commands). It has no dependencies.
'use strict';
const { spawnSync } = require('node:child_process');
const { randomUUID } = require('node:crypto');
const fs = require('node:fs');

// input returns an input of the action.
exports.input = (name) => (process.env[`INPUT_${name.toUpperCase()}`] || '').trim();

// flag reports whether an input is true. Other values than true and false are mistakes.
exports.flag = (name) => {
  const value = exports.input(name);
  if (!['', 'true', 'false'].includes(value)) {
    throw new Error(`input ${name}: use true or false instead of ${JSON.stringify(value)}`);
  }
  return value === 'true';
};

// set appends a value to one of the files of the runner: GITHUB_OUTPUT, GITHUB_ENV or GITHUB_STATE.
exports.set = (file, name, value) => {
  const end = randomUUID();
  fs.appendFileSync(process.env[file], `${name}<<${end}\n${value}\n${end}\n`);
};

// state returns a value that the first part of the action has saved for the last one.
exports.state = (name) => process.env[`STATE_${name}`] || '';

// run runs a command, shows what it prints on stderr, and returns what it prints on stdout.
exports.run = (command, ...args) => {
  const r = spawnSync(command, args, { stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8', maxBuffer: 64 << 20 });
  if (r.error) {
    throw r.error;
  }
  if (r.status !== 0) {
    throw new Error(`${command} ${args[0]} failed with exit code ${r.status}`);
  }
  return r.stdout;
};

// fail ends the step with an annotation.
exports.fail = (error) => {
  console.log(`::error::${error.message.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A')}`);
  process.exitCode = 1;
};
