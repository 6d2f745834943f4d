// Removes the kcp that the first part has started.
'use strict';
const { fail, run, state } = require('./runner.js');

try {
  if (state('kcpctl')) {
    process.env.XDG_STATE_HOME = state('state');
    run(state('kcpctl'), 'down', '--local', '-f', state('file'), '--purge', '--yes');
  }
} catch (error) {
  fail(error);
}
