// Node draws random UUIDs and integers ahead: 128 of the first and 1024 of the
// second wait in its memory. A sandbox that is forked or restored has a copy of
// that memory, so these would come out alike in every copy. Here they are drawn
// when they are asked for. NODE_OPTIONS loads this file into every Node.
//
// Loading crypto takes milliseconds, which most programs need not pay. So it is
// changed when the program loads it by require or as a global. After a second it
// is changed in any case, for programs that import it.
'use strict';
const Module = require('module');
const load = Module._load;
const global = Object.getOwnPropertyDescriptor(globalThis, 'crypto');

setTimeout(() => {
  try {
    const crypto = require('crypto');
    change(crypto);
    if (crypto.webcrypto) changeWeb(crypto.webcrypto);
  } catch {} // a Node without crypto
}, 1000).unref();

Module._load = _load;
function _load(name, ...rest) {
  const loaded = load.call(this, name, ...rest);
  if (name === 'crypto' || name === 'node:crypto') change(loaded);
  return loaded;
}

if (global?.get && global.configurable) {
  Object.defineProperty(globalThis, 'crypto', {
    ...global,
    get() {
      Object.defineProperty(globalThis, 'crypto', global);
      const web = global.get.call(this);
      changeWeb(web);
      return web;
    },
    set: global.set && ((value) => {
      Object.defineProperty(globalThis, 'crypto', global);
      globalThis.crypto = value;
    }),
  });
}

let changed = false;
function change(crypto) {
  if (Module._load === _load) Module._load = load;
  if (changed || !crypto.randomUUID) return;
  changed = true;
  crypto.randomUUID = uuid(crypto.randomUUID);
  crypto.randomInt = integer(crypto.randomInt, crypto);
  Module.syncBuiltinESMExports();
}

function uuid(draw) {
  return function randomUUID(options) {
    if (options !== undefined) draw(options); // for its errors
    return draw({ disableEntropyCache: true });
  };
}

// integer leaves it to Node to check what it is given, and draws for itself.
function integer(draw, crypto) {
  return function randomInt(...args) {
    const done = typeof args.at(-1) === 'function' ? args.pop() : undefined;
    draw(...args); // for its errors
    const [min, max] = args[1] === undefined ? [0, args[0]] : args;
    const pick = () => {
      const end = 2 ** 48 - (2 ** 48 % (max - min));
      let n;
      do n = crypto.randomBytes(6).readUIntBE(0, 6); while (n >= end);
      return min + (n % (max - min));
    };
    if (done === undefined) return pick();
    process.nextTick(() => done(undefined, pick()));
  };
}

let webChanged = false;
function changeWeb(web) {
  const prototype = Object.getPrototypeOf(web);
  if (webChanged || !prototype?.randomUUID) return;
  webChanged = true;
  const check = prototype.randomUUID;
  const crypto = require('crypto');
  prototype.randomUUID = function randomUUID() {
    check.call(this); // for its error, when this is another object
    return crypto.randomUUID();
  };
}
