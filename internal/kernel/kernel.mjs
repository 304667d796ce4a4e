// Runs JavaScript for a code context: one process, whose globals stay. The
// protocol is that of kernel.py. V8's own REPL mode does the hard part:
// top-level await, the value of the last expression, and const and let that
// may be declared again.
import fs from 'node:fs';
import { Session } from 'node:inspector';
import { createRequire } from 'node:module';
import path from 'node:path';
import { Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import util from 'node:util';
import vm from 'node:vm';

const channel = 200; // the socket; 201 and 202 are copies of stdout and stderr
const piece = 32 << 10;
const maxText = 1 << 20;
const maxData = 5 << 20;

const session = new Session();
session.connect();
const post = (method, params) => new Promise((resolve, reject) => {
  session.post(method, params, (err, result) => (err ? reject(err) : resolve(result)));
});

// ---- the channel

let run = null; // id of the run under way
let seq = 0;
let rest = Buffer.alloc(0);
const chunk = Buffer.alloc(64 << 10);

function takeLine() {
  const at = rest.indexOf(10);
  if (at < 0) return null;
  const line = rest.subarray(0, at).toString();
  rest = rest.subarray(at + 1);
  return line;
}

function took(n) {
  if (n === 0) process.reallyExit(0); // the agent let go
  rest = Buffer.concat([rest, chunk.subarray(0, n)]);
}

const readChunk = () => new Promise((resolve) => {
  fs.read(channel, chunk, 0, chunk.length, null, (err, n) => resolve(err ? 0 : n));
});

async function request() {
  for (;;) {
    const line = takeLine();
    if (line === null) took(await readChunk());
    else if (line.startsWith('{')) return JSON.parse(line);
    else if (line.startsWith('reborn ')) reborn(JSON.parse(line.slice(7)));
    else if (line.startsWith('environ ')) environ(JSON.parse(line.slice(8)));
  }
}

// environ applies changes of the sandbox's variables; null removes one.
function environ(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) delete process.env[name];
    else process.env[name] = value;
  }
}

// reborn is for a process that is a copy: its sandbox has another name, and
// Math.random shall not go on as it does in the other copies. V8 has no way to
// seed its generator again, so ours takes its place. On amd64, crypto asks the
// kernel for each number, through the image's OpenSSL provider. On arm64 there
// is no such provider: crypto continues as in the other copies. TLS ticket keys
// that were drawn before the copy are shared on every machine.
function reborn(env) {
  Object.assign(process.env, env);
  if (Math.random === random) Math.random = random = generator();
}

let random = Math.random;

// generator is xoshiro128**, seeded by the kernel: 53 random bits a number.
function generator() {
  const state = new Uint32Array(4);
  const fd = fs.openSync('/dev/urandom');
  fs.readSync(fd, state);
  fs.closeSync(fd);
  let [a, b, c, d] = state;
  const next = () => {
    const scrambled = Math.imul(b, 5);
    const shifted = b << 9;
    c ^= a; d ^= b; b ^= c; a ^= d; c ^= shifted;
    d = (d << 11) | (d >>> 21);
    return Math.imul((scrambled << 7) | (scrambled >>> 25), 9) >>> 0;
  };
  return () => ((next() >>> 5) * 0x4000000 + (next() >>> 6)) / 2 ** 53;
}

function writeAll(fd, buf) {
  for (let at = 0; at < buf.length;) {
    try {
      at += fs.writeSync(fd, buf, at);
    } catch (e) {
      if (e.code !== 'EAGAIN') throw e;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

const write = (kind, text = '') => writeAll(channel, Buffer.from(`\n${run}${kind}${text}\n`));

// sync returns when the agent has read all that was written so far.
function sync() {
  if (run === null) return;
  const want = `ack ${++seq}`;
  write('!', seq);
  for (;;) {
    const line = takeLine();
    if (line === want) return;
    if (line === null) took(fs.readSync(channel, chunk, 0, chunk.length, null));
  }
}

// ascii keeps a message's pieces whole wherever they are cut.
const ascii = (text) => text.replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));

function send(message) {
  if (run === null) return;
  const text = ascii(JSON.stringify(message));
  sync();
  for (let at = 0; at < text.length; at += piece) {
    write(at + piece < text.length ? '+' : '.', text.slice(at, at + piece));
  }
  sync();
}

// ---- standard streams, in order

let last = null;
function stream(fd) {
  const s = new Writable();
  // In the place of Writable's own, which an interrupt would leave waiting for
  // a write that never ends.
  s.write = (data, encoding, done = encoding) => {
    if (last !== null && last !== fd) sync();
    last = fd;
    const bytes = typeof data === 'string' ? Buffer.from(data, typeof encoding === 'string' ? encoding : 'utf8') : data;
    if (!(bytes instanceof Uint8Array)) throw new TypeError('what is written must be text or bytes');
    let failure = null;
    try {
      writeAll(fd, bytes);
    } catch (e) {
      if (e.code !== 'EBADF' && e.code !== 'EPIPE') failure = e;
    }
    if (typeof done === 'function') process.nextTick(done, failure);
    return true;
  };
  s.fd = fd;
  s.destroy = () => s;
  s.end = () => s;
  return s;
}
const out = { 1: stream(1), 2: stream(2) };
Object.defineProperty(process, 'stdout', { configurable: true, enumerable: true, get: () => out[1] });
Object.defineProperty(process, 'stderr', { configurable: true, enumerable: true, get: () => out[2] });

let stdin = null;
Object.defineProperty(process, 'stdin', {
  configurable: true, enumerable: true,
  get: () => (stdin ??= fs.createReadStream('', { fd: 0, autoClose: false })),
});

// reopen gives a run descriptors 0 to 2, whatever the last one did to them:
// open takes the lowest that is free.
function reopen(source) {
  try { fs.closeSync(0); } catch {}
  const fd = fs.openSync(source || '/dev/null', 'r');
  if (fd !== 0) fs.closeSync(fd);
  for (const n of [1, 2]) {
    try { fs.fstatSync(n); } catch { try { fs.openSync(`/proc/self/fd/${200 + n}`, 'w'); } catch {} }
  }
  stdin = null;
  last = null;
  if (source) write('<');
}

// ---- imports

const here = () => path.join(process.cwd(), '[run]');
let requireFrom, requireHere;
Object.defineProperty(globalThis, 'require', {
  configurable: true,
  get() {
    if (requireFrom !== process.cwd()) {
      requireFrom = process.cwd();
      requireHere = createRequire(here());
    }
    return requireHere;
  },
  set(value) { Object.defineProperty(globalThis, 'require', { value, writable: true, configurable: true }); },
});
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
for (const [name, get] of [['__dirname', () => process.cwd()], ['__filename', here]]) {
  Object.defineProperty(globalThis, name, { configurable: true, get, set(value) { Object.defineProperty(globalThis, name, { value, writable: true, configurable: true }); } });
}

function load(specifier, options) {
  const loader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  if (loader) {
    const warn = process.emitWarning; // that this is an experiment
    process.emitWarning = () => {};
    try {
      return new vm.Script('(s, o) => import(s, o)', { filename: here(), importModuleDynamically: loader })
        .runInThisContext()(specifier, options);
    } finally {
      process.emitWarning = warn;
    }
  }
  if (/^(node:|data:|file:)/.test(specifier)) return import(specifier, options);
  return import(pathToFileURL(globalThis.require.resolve(specifier)), options);
}
Object.defineProperty(globalThis, '__hutch_import', { value: load });

// rewrite turns import(...) and import declarations, which REPL mode lacks,
// into calls. It skips strings, comments and templates.
function rewrite(code) {
  if (!code.includes('import')) return code;
  const token = /\/\/[^\n]*|\/\*[^]*?\*\/|'(?:\\[^]|[^'\\\n])*'|"(?:\\[^]|[^"\\\n])*"|`(?:\\[^]|[^`\\])*`|(?<![\w$.#])import\b(?:\s*\(|\s*(?:([\w$*{][^'"`;()]*?)\s*from\s*)?(?:'([^'\n]+)'|"([^"\n]+)")\s*(?:with\s*(\{[^}]*\}))?\s*;?)/g;
  return code.replace(token, (text, clause, single, double, attributes) => {
    if (/^['"`/]/.test(text)) return text;
    if (text.endsWith('(')) return '__hutch_import(';
    const call = `await __hutch_import(${JSON.stringify(single ?? double)}${attributes ? `, {with: ${attributes}}` : ''})`;
    const lines = '\n'.repeat(text.split('\n').length - 1);
    return (clause ? binding(clause.trim(), call) : call) + ';' + lines;
  });
}

function binding(clause, call) {
  const [, first, others] = /^([\w$]+)?\s*,?\s*([^]*)$/.exec(clause);
  const parts = [];
  if (first) parts.push(`default: ${first}`);
  const all = /^\*\s*as\s+([\w$]+)$/.exec(others);
  if (all) return `const ${all[1]} = ${call}${first ? `, {default: ${first}} = ${all[1]}` : ''}`;
  if (others) parts.push(others.replace(/^\{|\}$/g, '').replace(/\bas\b/g, ':'));
  return `const {${parts.join(', ')}} = ${call}`;
}

// ---- values and errors

const clip = (text, most) => (text.length > most ? text.slice(0, most) + '…' : text);

function put(data, mime, form) {
  if (form === undefined || form === null) return;
  if (form instanceof Uint8Array) form = Buffer.from(form).toString('base64');
  let text;
  try { text = JSON.stringify(form); } catch { return; }
  if (text !== undefined && text.length <= maxData) data[mime] = form;
}

// forms is a value in every form that it has. An object tells its own with
// toMimeBundle, or as Jupyter's kernels do.
function forms(value) {
  const data = { 'text/plain': clip(typeof value === 'string' ? util.inspect(value) : util.inspect(value, { depth: 4, maxArrayLength: 200, maxStringLength: 100000 }), maxText) };
  if (value === null || typeof value !== 'object') return data;
  for (const name of ['toMimeBundle', '_toMime']) {
    if (typeof value[name] !== 'function') continue;
    for (const [mime, form] of Object.entries(value[name]() ?? {})) put(data, mime, form);
  }
  for (const [name, mime] of [['_toHtml', 'text/html'], ['_toSvg', 'image/svg+xml'], ['_toPng', 'image/png']]) {
    if (typeof value[name] === 'function') put(data, mime, value[name]());
  }
  const proto = Object.getPrototypeOf(value);
  if (Array.isArray(value) || proto === Object.prototype || proto === null) {
    try { put(data, 'application/json', JSON.parse(JSON.stringify(value))); } catch {}
  }
  return data;
}

globalThis.display = (...values) => {
  for (const value of values) send({ result: { data: forms(value) } });
};

// failure says what was thrown, without the kernel's own frames.
function failure(thrown, interrupted) {
  if (interrupted) return { name: 'Interrupted', message: 'the run was interrupted', traceback: 'Interrupted: the run was interrupted' };
  if (!(thrown instanceof Error) && !util.types.isNativeError(thrown)) {
    const text = util.inspect(thrown);
    return { name: 'Uncaught', message: clip(text, piece), traceback: 'Uncaught ' + clip(text, piece) };
  }
  let stack = '';
  try { stack = String(thrown.stack).split('\n').filter((l) => !l.includes(import.meta.url) && !/^\s+at .*(\(|at )node:(inspector|vm|internal)/.test(l)).join('\n'); } catch {}
  return { name: String(thrown.name), message: clip(String(thrown.message), piece), traceback: clip(stack || String(thrown), 2 * piece) };
}

process.on('uncaughtException', (e) => { out[2].write(`Uncaught ${failure(e).traceback}\n`); });
process.on('unhandledRejection', (e) => { out[2].write(`Uncaught (in promise) ${failure(e).traceback}\n`); });

// ---- runs

let stop = () => {};
process.on('SIGINT', () => stop());

// settle lets an interrupt of the last run come to nothing. Node.js reports a signal
// after all else that its loop finds at the same time, the next request among it: a
// first turn ends what was found with the request, a second looks for signals again.
async function settle() {
  await turn();
  await turn();
}

// take fetches the object that the inspector only describes.
let taken;
Object.defineProperty(globalThis, '__hutch_take', { value: (v) => { taken = v; } });
async function take(remote) {
  if (remote.objectId) {
    await post('Runtime.callFunctionOn', { functionDeclaration: 'function() { __hutch_take(this) }', objectId: remote.objectId, silent: true });
  } else if (remote.unserializableValue !== undefined) {
    taken = (0, eval)(remote.unserializableValue);
  } else {
    taken = remote.type === 'undefined' ? undefined : remote.value;
  }
  const value = taken;
  taken = undefined;
  return value;
}

let pending;
Object.defineProperty(globalThis, '__hutch_start', {
  value: (expression) => { pending = post('Runtime.evaluate', { expression, replMode: true, objectGroup: 'run', silent: true }); },
});

async function evaluate(code, name) {
  const interrupted = new Promise((_, reject) => { stop = () => reject(new Interrupted()); });
  interrupted.catch(() => {});
  const text = rewrite(code) + `\n//# sourceURL=${name}`;
  try {
    new vm.Script(`__hutch_start(${JSON.stringify(text)})`).runInThisContext({ breakOnSigint: true });
  } catch (e) {
    if (e?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw new Interrupted();
    throw e;
  }
  return Promise.race([pending, interrupted]);
}

class Interrupted extends Error {}

let count = 0;
async function serve(req) {
  if (req.dir) process.chdir(req.dir);
  if (req.error) {
    send({ error: req.error });
    return 1;
  }
  const { result, exceptionDetails } = await evaluate(req.code, `<run ${++count}>`);
  const value = await take(exceptionDetails?.exception ?? result);
  post('Runtime.releaseObjectGroup', { objectGroup: 'run' });
  if (exceptionDetails) {
    send({ error: failure(value) });
    return process.exitCode || 1;
  }
  if (value !== undefined) {
    globalThis._ = value;
    send({ result: { main: true, data: forms(value) } });
  }
  return process.exitCode || 0;
}

// prepare loads what a context to come may want. What cannot be loaded, its code
// will find out.
function prepare(modules) {
  for (const name of modules) {
    try { createRequire(path.join(process.cwd(), 'context'))(name); } catch {}
  }
  run = process.env.HUTCH_PROCESS;
  write('^');
  run = null;
}

// become takes on the environment of the context that this was spared for.
function become(env) {
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name];
  Object.assign(process.env, env);
}

for (;;) {
  const req = await request();
  if (req.prepare || req.become) {
    if (req.prepare) prepare(req.prepare);
    else become(req.become);
    continue;
  }
  await settle();
  const before = {};
  for (const [k, v] of Object.entries(req.env)) {
    before[k] = process.env[k];
    process.env[k] = v;
  }
  run = req.id;
  const awake = setInterval(() => {}, 1 << 30); // while user code waits for nothing
  let code = 1;
  try {
    reopen(req.stdin);
    code = await serve(req);
  } catch (e) {
    try { send({ error: failure(e, e instanceof Interrupted) }); } catch {}
  }
  stop = () => {};
  clearInterval(awake);
  process.exitCode = undefined;
  for (const [k, v] of Object.entries(before)) {
    if (v === undefined) delete process.env[k];
    else process.env[k] = v;
  }
  write('$', Number(code) & 255);
  run = null;
}
