// Leads the names below SUITE_DOMAIN to SUITE_ADDRESS, in place of a DNS server.
const dns = require('node:dns')

const { SUITE_DOMAIN: domain, SUITE_ADDRESS: address } = process.env
const lookup = dns.lookup
dns.lookup = (name, options, done) => {
  if (typeof options === 'function') [options, done] = [{}, options]
  if (!domain || !name.endsWith('.' + domain)) return lookup(name, options, done)
  process.nextTick(() => (options && options.all ? done(null, [{ address, family: 4 }]) : done(null, address, 4)))
}
